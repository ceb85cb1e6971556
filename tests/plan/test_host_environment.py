"""Which variables of a plan from elsewhere bring code into a process of the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.catalog.load import Catalog
from infra.plan.host_environment import brings_code


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LD_PRELOAD", "/tmp/x.so"), ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2:/models/k/x.so"),
        ("LD_PRELOAD", "/usr/lib/a.so /dev/shm/b.so"), ("LD_AUDIT", "/usr/lib/x.so"), ("LD_AUDIT", "x.so"),
        ("LD_LIBRARY_PATH", "/tmp"), ("LD_LIBRARY_PATH", "/usr/../tmp"), ("LD_LIBRARY_PATH", "tmp/lib"),
        ("LD_LIBRARY_PATH", "/home/x/lib:$LD_LIBRARY_PATH"), ("LD_ORIGIN_PATH", "/usr"), ("LD_DEBUG_OUTPUT", "/x"),
        ("PYTHONSTARTUP", "/usr/x.py"), ("PYTHONPATH", "/models/k/rev"), ("PYTHONHOME", "/mnt/py"),
        ("PYTHONUSERBASE", "/data"), ("PYTHONBREAKPOINT", "os.system"), ("PYTHONINSPECT", "1"),
        ("PYTHONWARNINGS", "all:0:antigravity.x:0:0"), ("PYTHONEXECUTABLE", "/usr/bin/python3"), ("BASH_ENV", "x"),
        ("ENV", "/usr/share/x"), ("PS4", "$(id)"), ("GCONV_PATH", "/tmp"), ("NODE_OPTIONS", "--require x"),
        ("NODE_PATH", "/tmp"), ("PERL5OPT", "-Mx"), ("PERL5LIB", "/tmp"), ("PERL5DB", "system"), ("RUBYOPT", "-rx"),
        ("JAVA_TOOL_OPTIONS", "-agentpath:/x"), ("_JAVA_OPTIONS", "-x"), ("PATH", "/tmp:/usr/bin"),
        ("CUDA_INJECTION64_PATH", "/tmp/x.so"), ("NVTX_INJECTION64_PATH", "/tmp/x.so"), ("CC", "/tmp/cc"),
        ("NCCL_NET_PLUGIN", "/tmp/libx.so"), ("NCCL_TUNER_PLUGIN", "/models/x.so"), ("UCX_MODULE_DIR", "/tmp"),
        ("FI_PROVIDER_PATH", "/tmp"), ("NIXL_PLUGIN_DIR", "/tmp"), ("OPENSSL_CONF", "/tmp/o.cnf"),
        ("OPENSSL_MODULES", "/tmp"), ("CUDA_HOME", "/tmp/cuda"), ("VLLM_NCCL_SO_PATH", "/tmp/libnccl.so"),
        ("TRITON_PTXAS_PATH", "/tmp/ptxas"), ("ASCEND_CUSTOM_OPP_PATH", "/data/opp"), ("GIT_SSH_COMMAND", "x"),
        ("BROWSER", "x"), ("RDMAV_DRIVERS", "/tmp/x"), ("CONDA_PREFIX", "/tmp/c"),
        # the loader puts its own folder for $ORIGIN, and goes up from there
        ("LD_PRELOAD", "$ORIGIN/../../tmp/x.so"), ("LD_LIBRARY_PATH", "/usr/lib:${ORIGIN}/../../tmp"),
        ("NCCL_NET_PLUGIN", "/usr/lib/a.so,/tmp/x.so"), ("HOME", "/tmp/x"), ("HSA_TOOLS_LIB", "/tmp/x.so"),
        ("OMP_TOOL_LIBRARIES", "/tmp/x.so"), ("GCC_EXEC_PREFIX", "/tmp/"), ("COMPILER_PATH", "/tmp"),
        ("LIBRARY_PATH", "/tmp"), ("CPATH", "/tmp"), ("CPLUS_INCLUDE_PATH", "/tmp"),
        ("CFLAGS", "-fplugin=/tmp/x.so"), ("NVCC_PREPEND_FLAGS", "-ccbin /tmp/cc"),
        ("TRITON_CACHE_DIR", "/tmp/t"), ("TORCH_EXTENSIONS_DIR", "/var/tmp"), ("HF_MODULES_CACHE", "/dev/shm/m"),
        ("HF_HOME", "/var/../tmp/hf"), ("XDG_CACHE_HOME", "//tmp"),
    ],
)  # fmt: skip
def test_what_brings_code_from_elsewhere_is_told(name: str, value: str) -> None:
    assert brings_code(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # of published deployments (tests/recipes/published)
        ("LD_PRELOAD", "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2:$LD_PRELOAD"),
        ("LD_LIBRARY_PATH", "/usr/local/Ascend/ascend-toolkit/latest/python/site-packages/mooncake:$LD_LIBRARY_PATH"),
        ("UCX_MODULE_DIR", "/usr/local/lib/python3.12/dist-packages/nixl_cu13.libs/ucx"),
        ("PYTHONHASHSEED", "0"), ("PYTHONUNBUFFERED", "1"), ("PYTHONNOUSERSITE", "1"), ("PYTHONOPTIMIZE", "1"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"), ("HF_HOME", "/hf_hub_cache"),
        ("FLASHINFER_WORKSPACE_BASE", "/tmp/flashinfer-cache"), ("SGLANG_DG_CACHE_DIR", "/tmp/deepgemm-cache"),
        ("NCCL_NET_PLUGIN", "ofi"), ("NCCL_NET", "IB"), ("VLLM_PLUGINS", "ascend"), ("LD_PRELOAD", "libjemalloc.so.2"),
        ("PYTHONPATH", "/sgl-workspace/sglang/python:$PYTHONPATH"), ("CUDA_HOME", "/usr/local/cuda"),
        ("LD_LIBRARY_PATH", ""), ("PATH", "/usr/local/bin:/usr/bin:/bin"), ("ASCEND_HOME_PATH", "/usr/local/Ascend"),
        ("NCCL_IB_HCA", "mlx5_0"), ("GLOO_SOCKET_IFNAME", "eth0"), ("VLLM_CACHE_ROOT", "/cache"),
        ("TORCH_HOME", "/cache"), ("XDG_CACHE_HOME", "/cache"), ("TRITON_HOME", "/cache"),
    ],
)  # fmt: skip
def test_what_published_deployments_set_is_theirs_to_set(name: str, value: str) -> None:
    assert not brings_code(name, value)


def test_nothing_that_the_catalogue_sets_brings_code(catalog: Catalog) -> None:
    assert [
        (name, value)
        for name, value in sorted(set(_catalogued(catalog)))
        if brings_code(name, value)
    ] == []


def _catalogued(catalog: Catalog) -> Iterator[tuple[str, str]]:
    for accelerator in catalog.ids("accelerators"):
        yield from catalog.accelerator(accelerator).env.items()
    for recipe in catalog.recipes.values():
        yield from recipe.env.items()
