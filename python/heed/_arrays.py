"""Results of the caller's kind of array: where they come from and how they are handed back."""

import numpy as np

from . import _core


def type_of_sums(dtype) -> np.dtype:
    """lse, weights and statistics: float64 for float64, else float32."""
    return np.dtype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)


def refuse_masked(name, array):
    """:raises TypeError: NumPy would show what the array, or one in a list of them, hides"""
    if isinstance(array, (list, tuple)):
        for i, one in enumerate(array):
            if isinstance(one, (list, tuple, np.ma.MaskedArray)):
                refuse_masked(f"{name}[{i}]", one)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is of type numpy.ma.MaskedArray, which hides elements, and they would be seen; expected "
                        f"a plain array, such as {name.split()[-1]}.filled(0)")


def numpys_view(name, array) -> np.ndarray:
    """Of an array of another kind, the same memory; refuses what any call refuses."""
    memory = _core.checked_memory(name, array)   # NumPy would follow whatever pointers it is given
    if memory is None:
        raise TypeError(f"{name} is of type {type(array).__qualname__}, whose elements NumPy does not know; expected an array "
                        "of a type that it has")
    try:
        return np.asarray(memory)
    except ValueError as error:
        raise ValueError(f"{name} has shape {memory.shape}; expected one that NumPy can hold ({error})") from error


class NumPy:
    """NumPy arrays, and whatever else has only the buffer protocol."""

    @staticmethod
    def seen(array, name="q"):
        """The same memory, with a shape and a dtype; not what would have to be copied, such as a list."""
        return array if isinstance(array, np.ndarray) else numpys_view(name, array)

    @staticmethod
    def empty_like(array, shape):
        """Of the same type, with the axes in the same order in memory."""
        return np.empty_like(array, shape=shape, subok=False)

    @staticmethod
    def empty(array, shape, integer=False):
        """Of the type of sums, or int64."""
        return np.empty(shape, np.int64 if integer else type_of_sums(array.dtype))

    @staticmethod
    def finished(array):
        return array


class Torch:
    """PyTorch's tensors; the module is the caller's, heed does not import it."""

    @staticmethod
    def seen(array, name="q"):
        layout = "nested" if array.is_nested else str(array.layout)   # some have no shape or no strides to ask for
        if layout != "torch.strided":
            raise ValueError(f"{name} has layout {layout}; expected torch.strided")
        return array

    @staticmethod
    def empty_like(array, shape):
        import torch
        if shape == array.shape:
            return torch.empty_like(array)
        if array.is_contiguous():
            return array.new_empty(shape)
        order = sorted(range(array.ndim), key=lambda axis: -array.stride(axis))
        back = sorted(range(array.ndim), key=order.__getitem__)
        return array.new_empty([shape[axis] for axis in order]).permute(back)

    @staticmethod
    def empty(array, shape, integer=False):
        import torch
        dtype = torch.int64 if integer else torch.float64 if array.dtype == torch.float64 else torch.float32
        return array.new_empty(shape, dtype=dtype)

    @staticmethod
    def finished(array):
        return array


def numpys_dtype(array) -> np.dtype:
    """Also of an array whose library has element types of its own."""
    try:
        dtype = np.dtype(array.dtype)
    except TypeError:
        dtype = np.dtype(object)   # which a class of Python's would be, too
    return numpys_view("q", array).dtype if dtype.hasobject else dtype


class Immutable:
    """Arrays that nobody may write to, such as JAX's: written as NumPy's, then handed over."""

    def __init__(self, convert):
        self.convert = convert

    @staticmethod
    def seen(array, name="q"):
        return array

    @staticmethod
    def empty_like(array, shape):
        return np.empty(shape, numpys_dtype(array))

    @staticmethod
    def empty(array, shape, integer=False):
        return np.empty(shape, np.int64 if integer else type_of_sums(numpys_dtype(array)))

    def finished(self, array):
        return self.convert(array)


def kind_of(array):
    """How to make results for an input of this kind."""
    if isinstance(array, np.ndarray):
        return NumPy
    for base in type(array).__mro__:  # a subclass is of the kind of what it is derived from
        module = base.__module__.partition(".")[0]
        if module == "torch":
            return Torch
        if module in ("jax", "jaxlib"):
            import jax.numpy
            return Immutable(jax.numpy.asarray)
    if hasattr(array, "__array_namespace__"):
        return Immutable(array.__array_namespace__().from_dlpack)
    return NumPy


def into(out, compiled, *arguments) -> None:
    """compiled(*arguments), which writes to ``out``, if there is one. PyTorch's autograd has to know, or it would take what is there
    then for what an operation saved; but not of arguments that are refused, which is before anything is written."""
    try:
        compiled(*arguments)
    except BaseException as error:
        # Python's own code has a frame behind this one: a signal's handler, whatever it raises, may end the call in its midst.
        refused = type(error) in (TypeError, ValueError) and error.__traceback__ and error.__traceback__.tb_next is None
        written(None if refused else out)
        raise
    if out is not None:
        written(out)


def written(out):
    if out is not None and kind_of(out) is Torch:
        import torch
        if not out.is_inference():  # no operation saves those
            torch.autograd.graph.increment_version(out)


def shape_of(name, array) -> tuple:
    """The shape, of whatever has one."""
    if getattr(array, "is_nested", False):
        Torch.seen(array, name)
    shape = getattr(array, "shape", None)
    return tuple(NumPy.seen(array, name).shape if shape is None else shape)
