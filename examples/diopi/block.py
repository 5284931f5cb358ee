"""A small network by DIOPI's operators: convolution, batch normalisation, ReLU, pool, linear layer, softmax.

    rkcosim diopi -- python examples/diopi/block.py

The weights are random (seed 7).  float16 tensors are computed on the NPU, Softmax on the host.
"""

import ctypes

import diopilib as d
import numpy as np


def size(*values):
    """Return a size of these integers."""
    return d.diopiSize(list(values), len(values))


def tensor(array):
    """Return a tensor on the device with an array's elements."""
    array = np.ascontiguousarray(array)
    return d.diopiTensor(
        size(*array.shape), None, d.Dtype[array.dtype.name], d.Device.AIChip, context, array.ctypes.data
    )


def empty(*shape):
    """Return a tensor of float16 on the device."""
    return d.diopiTensor(size(*shape), None, d.Dtype.float16, d.Device.AIChip, context)


def numpy(source):
    """Return an array with a dense tensor's elements."""
    array = np.empty(source.shape().data, source.get_dtype().name)
    d.diopi_tensor_copy_to_buffer(context, source, array.ctypes.data_as(ctypes.c_void_p).value)
    return array


def call(name, *arguments):
    """Call an operator, and stop with the last error if it fails."""
    result = getattr(d, name)(context, *arguments)
    if result != d.diopiError.diopi_success:
        raise SystemExit(f"{result.name}: {d.get_last_error_string()}")


d.init_library()
context = d.Context()
random = np.random.default_rng(7)


def normal(*shape):
    """Return random numbers of float16."""
    return random.normal(0, 0.5, shape).astype(np.float16)


image, kernels, rows = (
    tensor(normal(1, 3, 16, 16)),
    tensor(normal(8, 3, 3, 3)),
    tensor((normal(10, 512) / 10).astype(np.float16)),
)
maps, pooled, scores, shares = empty(1, 8, 16, 16), empty(1, 8, 8, 8), empty(1, 10), empty(1, 10)
scale, offset, mean, variance = (tensor(np.full(8, v, np.float32)) for v in (1.5, 0.25, 0, 2))

call("diopiConvolution2d", maps, image, kernels, None, size(1, 1), size(1, 1), size(1, 1), 1)
kept = tensor(np.zeros(8, np.float32)), tensor(np.zeros(8, np.float32))
call("diopiBatchNorm", maps, *kept, maps, scale, offset, mean, variance, False, 0.1, 1e-5)
call("diopiReluInp", maps)
call("diopiMaxPool2d", pooled, maps, size(2, 2), size(2, 2), size(0, 0), size(1, 1), False)
pooled.reset_shape(size(1, 512))
call("diopiLinear", scores, pooled, rows, None)
call("diopiSoftmax", shares, scores, 1)
print(d.diopiGetVendorName())
print("class", int(numpy(shares).argmax()), np.round(numpy(shares).astype(float), 3).tolist()[0])
d.finalize_library()
