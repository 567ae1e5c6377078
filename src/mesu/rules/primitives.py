"""The two elementwise functions that operators cannot say: here for tensors, in `mesu.engine.compiled` for scalars."""


def bound(x, limit):
    """`x`, kept between -limit and limit; NaN stays NaN."""
    return x.clamp(-limit, limit)


def root(x):
    """The square root."""
    return x.sqrt()
