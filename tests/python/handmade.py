"""DLPack as other libraries write it, and as none should: its structures, and tensors made field by field."""

import ctypes


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", Type),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def integers(values):
    """A pointer to them, which keeps them; NULL for None."""
    return None if values is None else ctypes.cast((ctypes.c_int64 * max(len(values), 1))(*values),
                                                   ctypes.POINTER(ctypes.c_int64))


class Handmade:
    """A DLPack tensor of an array's memory. `version`: in a capsule that says its version."""

    def __init__(self, data, shape, strides=None, byte_offset=0, dtype=(2, 32, 1), device=1, ndim=None, sizes=True,
                 version=None):
        self.shape = tuple(shape)
        self.kept = data
        tensor = Tensor(data.ctypes.data if data is not None else None, Device(device, 0), len(shape) if ndim is None else ndim,
                        Type(*dtype), integers(shape) if sizes else None, integers(strides), byte_offset)
        self.name = b"dltensor_versioned" if version else b"dltensor"
        self.managed = Versioned(*version, None, None, 0, tensor) if version else Managed(tensor)

    def __dlpack__(self, **_):
        return new_capsule(ctypes.addressof(self.managed), self.name, None)

    def __dlpack_device__(self):
        return (self.managed.tensor.device.type, 0)


class OnlyDlpack:
    """An array of some library that heed has never heard of."""

    def __init__(self, values):
        self.values = values
        self.shape = values.shape

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()
