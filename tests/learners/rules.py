"""An optimiser of each rule, for tests that hold whatever a learner learns by."""

import mesu
from mesu import optim

POSTERIOR = {
    "mesu": lambda net: mesu.MESU(net, memory=1000),
    "mesu-paper": lambda net: mesu.MESU(net, memory=1000, update="paper", max_step=0.5),
    "foo-vb": lambda net: mesu.FOOVB(net),
}
WEIGHT = {
    "sgd": lambda p: optim.SGD(p, 0.05),
    "ewc": lambda p: optim.EWC(p, 0.05, 2.0),
    "ewc-online": lambda p: optim.EWCOnline(p, 0.05, 2.0, 0.2),
    "ewc-stream": lambda p: optim.EWCStream(p, 0.05, 2.0, 0.2),
    "si": lambda p: optim.SI(p, 0.05, 0.1),
    "si-per-task": lambda p: optim.SIPerTask(p, 0.05, 0.1),
}
