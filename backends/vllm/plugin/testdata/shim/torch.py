"""What the plugin uses of torch, over numpy, for a Python without torch. Tensors are on the CPU; NaN is the largest, as in torch."""

from types import SimpleNamespace

import numpy as np

inf, float32, int64 = np.inf, np.float32, np.int64


class device:
    def __init__(self, name):
        self.type = str(getattr(name, "type", name)).split(":")[0]


class Tensor(np.ndarray):
    device = device("cpu")

    def numpy(self):
        return self.view(np.ndarray)

    def numel(self):
        return self.size

    def copy_(self, other):
        self[...] = other
        return self

    def amax(self, dim):
        return self.max(axis=dim)

    def float(self):
        return self.astype(np.float32)

    def int(self):
        return self.astype(np.int32)

    def log(self):
        return _quiet(np.log, self)

    def clamp(self, min):
        return np.maximum(self, np.float32(min))

    def clone(self):
        return self.copy()


def _quiet(f, *args):
    with np.errstate(all="ignore"):
        return f(*args)


def _tensor(a):
    return np.asarray(a).view(Tensor)


def tensor(data, dtype=None, device=None):
    return _tensor(np.array(data, dtype=dtype))


def from_numpy(a):
    return _tensor(a)


def empty(shape, dtype=None, device=None, pin_memory=False):
    return _tensor(np.empty(shape, dtype=dtype))


def softmax(x, dim):
    e = _quiet(lambda: np.exp(x - x.max(axis=dim, keepdims=True)))
    return _quiet(lambda: e / e.sum(axis=dim, keepdims=True))


def topk(x, k, dim, sorted=True):
    assert dim == 1
    order = np.where(np.isnan(x), np.inf, x)
    ids = np.argpartition(-order, k - 1, axis=1)[:, :k] if k < x.shape[1] else np.argsort(-order, axis=1)
    return _tensor(np.take_along_axis(x, ids, 1)), _tensor(ids.astype(np.int64))


def cat(parts, out):
    np.concatenate(parts, out=out)
    return out


def inference_mode():
    return lambda f: f


linalg = SimpleNamespace(vecdot=lambda a, b: _quiet(lambda: (a * b).sum(axis=1)))
