"""Who watches the attention calls of a model."""


def observers(module) -> list:
    """Those that want to see what this module's attention computes."""
    return []
