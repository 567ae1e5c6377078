"""Online models: they learn a stream row by row, grow with it, can be read from any thread, and are saved to one file.

- `model`: learning; `snapshot`: a model at one moment, which predicts; `settings`: what it is made with
- `network`: the weights beneath; `growth`: new columns and classes; `scaling`, `targets`: standardised inputs and targets
- `files`, `loading`: saved models; `memory_report`: what is still remembered
- `sklearn`, `river` (with `river_rows`): the classes that users meet, which share `face`; `drift`: a detector and its wrapper
"""
