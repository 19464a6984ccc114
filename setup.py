"""Builds the compiled twins of `protocol/compiled`; all else stands in pyproject.toml.

Without Cython or a C compiler the package is what it is without them. `SVC_COMPILED_MODULES=false` builds
none and makes a wheel for every system.
"""

import os
import sys
from email.parser import HeaderParser
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from protocol.compiled import MODULES, SUFFIX, SWITCH, sources, twin  # noqa: E402
from protocol.release import BUILD_VERSION, UPCOMING, described  # noqa: E402

#: As setuptools itself reads it.
TARGET_SUFFIX = "SETUPTOOLS_EXT_SUFFIX"
#: Types in annotations are not types of C: what mypy calls `float` may be an int.
DIRECTIVES = {"language_level": 3, "annotation_typing": False, "embedsignature": False}


class Twins(build_ext):
    """Each module becomes a file of the folder of twins, whatever its package."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.parallel = os.cpu_count()

    def get_ext_filename(self, fullname: str) -> str:
        # The suffix is another one where another machine is compiled for (deploy/wheels.py).
        return os.path.join("protocol", "compiled", twin(fullname, os.environ.get(TARGET_SUFFIX) or SUFFIX))

    def get_ext_fullpath(self, ext_name: str) -> str:
        return os.path.join(HERE if self.inplace else self.build_lib, self.get_ext_filename(ext_name))

    def copy_extensions_to_source(self) -> None:
        # A service may look for them meanwhile: each comes whole, by rename, and the old ones go last.
        fresh = set()
        for ext in self.extensions:
            name = self.get_ext_filename(ext.name)
            if os.path.exists(os.path.join(self.build_lib, name)):
                self.copy_file(os.path.join(self.build_lib, name), HERE / f"{name}.new")
                os.replace(HERE / f"{name}.new", HERE / name)
                fresh.add(HERE / name)
        for old in set((HERE / "protocol" / "compiled").glob("*.so")) - fresh:
            old.unlink()

    def build_extension(self, ext: Extension) -> None:
        if os.path.exists(self.get_ext_fullpath(ext.name)):
            # Its name says from what it was made.
            return
        try:
            from Cython.Build import cythonize
            from Cython.Compiler.Errors import CompileError as NotCython
        except ImportError:
            raise CompileError("Cython is missing") from None
        try:
            [written] = cythonize(
                Extension(ext.name, [str(sources(ext.name)[0].relative_to(HERE))]),
                build_dir=self.build_temp,
                compiler_directives=DIRECTIVES,
                force=True,
                quiet=True,
            )
        except NotCython as error:
            raise CompileError(str(error)) from None
        ext.sources = written.sources
        super().build_extension(ext)


# The same bytes wherever it is built: nothing that names a folder. Whoever asks for another level gets it, as
# tests do that need none: `CFLAGS=-O0` compiles in a third of the time (20 and 64 s of a core, 2026-11).
# With `-O1` it is 42 s, and decoding takes 1.04 of what it takes with `-O2`.
LEVEL = [] if "-O" in os.environ.get("CFLAGS", "") else ["-O2"]
SAME = {"extra_compile_args": ["-g0", *LEVEL, "-w"], "extra_link_args": ["-Wl,--strip-all"]}


def packed() -> str | None:
    """The version of a source archive, which lies beside what it was made of."""
    path = HERE / "PKG-INFO"
    return HeaderParser().parsestr(path.read_text(encoding="utf-8"))["Version"] if path.exists() else None


wanted = os.environ.get(SWITCH, "") != "false"
setup(
    version=os.environ.get(BUILD_VERSION) or packed() or described(HERE) or f"{UPCOMING}.dev0",
    cmdclass={"build_ext": Twins},
    ext_modules=[Extension(name, [], optional=True, **SAME) for name in MODULES] if wanted else [],
)
