"""A tensor-parallel group whose ranks are threads of one process."""

import threading

_here = threading.local()


class Group:
    def __init__(self, size):
        self.barrier, self.box = threading.Barrier(size, timeout=30), None

    def rank(self, n):
        return Rank(self, n)


class Rank:
    def __init__(self, group, n):
        self.group, self.rank_in_group = group, n

    def broadcast(self, tensor, src=0):
        if self.rank_in_group == src:
            self.group.box = tensor.clone()
        self.group.barrier.wait()
        tensor.copy_(self.group.box)
        self.group.barrier.wait()
        return tensor


def enter(rank):
    _here.rank = rank


def get_tp_group():
    return _here.rank
