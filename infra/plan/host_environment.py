"""Which variables bring code into a process that runs on its host as root, without a container.

What a loader, an interpreter or a library runs because a variable says so is a program like the one that is started:
a plan from elsewhere names none but what the host's own packages have (ld.so(8); Python 3.12 "Command line and
environment"; bash(1) BASH_ENV, sh(1p) ENV; perlrun; Node.js "Command-line API"; glibc iconv GCONV_PATH; CUDA CUPTI
CUDA_INJECTION64_PATH; NCCL "Environment variables"; OpenSSL openssl-env(7); UCX and libfabric; GCC "Environment
Variables Affecting GCC"; ROCr HSA_TOOLS_LIB; OpenMP 5.0 OMP_TOOL_LIBRARIES; site.py's folder below HOME; checked
2026-11-26).
"""

from __future__ import annotations

import posixpath
import re

# Each of them runs what its own text holds, or opens what it names, and no engine needs it.
_RUNS_TEXT = re.compile(
    r"BASH_ENV|ENV|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|PS[0-4]|IFS|PERL5OPT|PERL5DB|PERL5SHELL|PERLIO_DEBUG|RUBYOPT"
    r"|NODE_OPTIONS|_?JAVA_(?:TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|BROWSER|EDITOR|VISUAL|PAGER|LESSOPEN|LESSCLOSE"
    r"|GIT_[A-Z_]+|SSH_ASKPASS|SUDO_ASKPASS|TCLLIBPATH|LUA_INIT(?:_\d_\d)?|R_PROFILE(?:_USER)?|JULIA_[A-Z_]+"
    r"|CFLAGS|CPPFLAGS|CXXFLAGS|LDFLAGS|LDSHARED|NVCC_(?:PREPEND|APPEND)_FLAGS|HIPCC_[A-Z_]*FLAGS[A-Z_]*"
)
# Of Python's and of the loader's own, which are many and grow: these are known to bring no code.
_PYTHONS = re.compile(r"PYTHON[A-Z0-9]*")
_PYTHONS_PLAIN = re.compile(
    r"PYTHON(?:HASHSEED|UNBUFFERED|NOUSERSITE|DONTWRITEBYTECODE|OPTIMIZE|FAULTHANDLER|UTF8|IOENCODING|MALLOC|TRACEMALLOC"
    r"|DEVMODE|ASYNCIODEBUG|SAFEPATH|VERBOSE|DEBUG|COERCECLOCALE|INTMAXSTRDIGITS|PROFILEIMPORTTIME|NODEBUGRANGES)"
)
_LOADERS = re.compile(r"LD_[A-Z0-9_]+")
_LOADERS_PLAIN = frozenset({"LD_BIND_NOW", "LD_BIND_NOT", "LD_WARN"})
# What names files and folders that code is taken from.
_NAMES_CODE = re.compile(
    r"LD_PRELOAD|LD_LIBRARY_PATH|PYTHON(?:PATH|HOME|PYCACHEPREFIX|PLATLIBDIR|USERBASE)|PATH|GCONV_PATH|LOCPATH|NODE_PATH"
    r"|PERL5LIB|PERLLIB|RUBYLIB|CLASSPATH|GUILE_LOAD_PATH|LUA_C?PATH|OPENSSL_(?:CONF|MODULES|ENGINES|CONF_INCLUDE)"
    r"|(?:CUDA|ROCM|ASCEND|CANN|UCX|FI|NIXL|NCCL|RCCL|HCCL|VLLM|SGLANG|TRITON|GST|IBV|RDMAV)_[A-Z0-9_]*"
    r"(?:_LIBRARY|_LIBRARY_PATH|_PLUGIN|_PLUGINS?_(?:PATH|DIR)|_OPP_PATH|_DRIVERS|_COMPILER)"
    r"|(?:CUDA|ROCM|HIP|ASCEND|ASCEND_TOOLKIT|MPI|JAVA|CONDA|OPAL|NVSHMEM)_(?:HOME|PATH|ROOT|PREFIX|HOME_PATH)"
    r"|UCX_MODULE_DIR|NIXL_PLUGIN_DIR|FI_PROVIDER_PATH|NCCL_NET_PLUGIN|RDMAV_DRIVERS|IBV_DRIVERS|TRITON_PTXAS_PATH"
    r"|HOME|HSA_TOOLS_LIB|OMP_TOOL_LIBRARIES|GCC_EXEC_PREFIX|COMPILER_PATH|LIBRARY_PATH|CPATH|C(?:PLUS)?_INCLUDE_PATH"
    r"|CC|CXX|NVCC|CUDACXX|[A-Z0-9_]*(?:_PRELOAD|_SO_PATH|INJECTION64_PATH)"
)
# Where what was compiled, pickled or downloaded lies, and is run again without a look: in a folder of everybody's it
# may be another's. FLASHINFER_WORKSPACE_BASE and DeepGEMM's are left out: published recipes set them to /tmp.
# (triton knobs.py; torch utils/cpp_extension.py and _inductor/runtime/cache_dir_utils.py; huggingface_hub constants.py;
# transformers dynamic_module_utils.py; vllm and sglang environment; tvm_ffi; numba; cupy; aiter jit/core.py; tilelang)
_KEEPS_CODE = re.compile(
    r"TRITON_(?:CACHE_DIR|HOME|OVERRIDE_DIR)|TORCH_(?:EXTENSIONS_DIR|HOME)|TORCHINDUCTOR_CACHE_DIR|HF_(?:MODULES_CACHE|HOME)"
    r"|VLLM_(?:CACHE_ROOT|CONFIG_ROOT|XLA_CACHE_PATH)|SGLANG_CACHE_DIR|CUDA_CACHE_PATH|TVM_FFI_CACHE_DIR|NUMBA_CACHE_DIR"
    r"|CUPY_CACHE_DIR|AITER_JIT_DIR|TILELANG_CACHE_DIR|XDG_(?:CACHE|CONFIG|DATA)_HOME"
)
# Where root alone lays programs: packages, and the folders at the root in which images build their engines.
_ROOTS = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/sgl-workspace", "/vllm-workspace",
          "/workspace")  # fmt: skip
_ANYBODYS = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", "/var/lock", "/var/crash")  # noqa: S108 - refused


def brings_code(name: str, value: str) -> bool:
    """Whether a variable has a process of a host run what is not of the host's packages."""
    if _RUNS_TEXT.fullmatch(name):
        return bool(value)
    if _NAMES_CODE.fullmatch(name):
        return any(not is_roots(each) for each in re.split(r"[:;,\s]", value))
    if _KEEPS_CODE.fullmatch(name):
        return is_anybodys(value)
    if _PYTHONS.fullmatch(name):
        return not _PYTHONS_PLAIN.fullmatch(name)
    return _LOADERS.fullmatch(name) is not None and name not in _LOADERS_PLAIN


def is_anybodys(path: str) -> bool:
    """Whether every user of a host may make a folder there (hier(7), file-hierarchy(7))."""
    whole = "/" + posixpath.normpath(f"/{path}").lstrip("/")
    return any(whole == folder or whole.startswith(f"{folder}/") for folder in _ANYBODYS)


def is_roots(entry: str) -> bool:
    """Whether an entry is a bare name, which is looked up where root lays libraries, or lies where root alone writes.

    A unit works in `/`: a relative path begins there, and so does a variable that nothing settles. The loader settles
    `$ORIGIN`, the program's own folder (ld.so(8)): what climbs from there is anywhere.
    """
    if "/" not in entry or (entry.startswith("$") and ".." not in entry.split("/")):
        return True
    path = "/" + posixpath.normpath(f"/{entry}").lstrip("/")
    return any(path == root or path.startswith(f"{root}/") for root in _ROOTS)
