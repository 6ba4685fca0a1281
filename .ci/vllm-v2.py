"""Lets vLLM's V2 model runner start on a CPU, for tests: its Triton kernels run in Triton's interpreter, slowly.

usage: vllm-v2.py SITE-PACKAGES

Run vLLM with TRITON_INTERPRET=1 and TRITON_DEFAULT_BACKEND=cpu then. It puts one package there, with two entry points:
a Triton backend "cpu", which is asked for its name and compiles nothing, and a plugin of vLLM that turns off the one
kernel the interpreter cannot run (top-k and top-p; vLLM has the same without Triton).
"""

import pathlib
import sys

NAME, VERSION = "qr_triton_cpu", "0.1"

PLUGIN = """import os


def without_topk_kernel():
    if os.environ.get("TRITON_INTERPRET") == "1":
        import vllm.v1.sample.ops.topk_topp_sampler as sampler

        sampler.HAS_TRITON = False
"""

DRIVER = """from triton.backends.driver import DriverBase


class CPUDriver(DriverBase):
    @classmethod
    def is_active(cls):
        return True

    def map_python_to_cpp_type(self, ty):
        return "void*"

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self):
        import torch

        return torch.device("cpu")

    def get_benchmarker(self):
        raise NotImplementedError

    def get_current_device(self):
        return 0

    def set_current_device(self, device):
        pass

    def get_current_stream(self, device=0):
        return 0

    def get_device_capability(self, device=0):
        return (0, 0)
"""

COMPILER = """from triton.backends.compiler import BaseBackend


class CPUBackend(BaseBackend):
    @staticmethod
    def supports_target(target):
        return target.backend == "cpu"

    def hash(self):
        return "cpu"

    def parse_options(self, options):
        return options

    def add_stages(self, *args):
        pass

    def load_dialects(self, context):
        pass

    def get_module_map(self):
        return {}

    def get_codegen_implementation(self, *args):
        return {}

    def pack_metadata(self, metadata):
        return metadata
"""

ENTRY_POINTS = f"""[triton.backends]
cpu = {NAME}

[vllm.general_plugins]
{NAME} = {NAME}:without_topk_kernel
"""


def main():
    site = pathlib.Path(sys.argv[1])
    files = {
        f"{NAME}/__init__.py": PLUGIN,
        f"{NAME}/driver.py": DRIVER,
        f"{NAME}/compiler.py": COMPILER,
        f"{NAME}-{VERSION}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n",
        f"{NAME}-{VERSION}.dist-info/entry_points.txt": ENTRY_POINTS,
        f"{NAME}-{VERSION}.dist-info/RECORD": "",
    }
    for path, text in files.items():
        file = site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


if __name__ == "__main__":
    main()
