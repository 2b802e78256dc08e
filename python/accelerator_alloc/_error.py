"""The package's exception."""


class AcceleratorError(RuntimeError):
    """A function of this package failed. Its message says why. PyTorch is unchanged."""
