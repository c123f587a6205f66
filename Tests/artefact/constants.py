"""The arrays of literals that the compiler has made into constants, in object files."""

import collections
import re

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection


def of(file):
    """The constants of an object file: the name of each, and its bytes with what they point to."""
    elf = ELFFile(file)
    symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
    relocations = collections.defaultdict(list)
    for section in elf.iter_sections():
        if isinstance(section, RelocationSection):
            relocations[section["sh_info"]] += section.iter_relocations()

    def target(relocation):
        symbol = symbols[relocation["r_info_sym"]]
        if symbol["st_info"]["bind"] != "STB_LOCAL":
            return symbol.name, relocation["r_addend"]
        data = elf.get_section(symbol["st_shndx"]).data()
        start = symbol["st_value"] + relocation["r_addend"]
        return data[start:data.find(b"\0", start)]

    for symbol in symbols:
        home, start, size = symbol["st_shndx"], symbol["st_value"], symbol["st_size"]
        if re.search(r"Tv\d*_r$", symbol.name) and isinstance(home, int):
            points = sorted((each["r_offset"] - start, repr(target(each))) for each in relocations[home]
                            if start <= each["r_offset"] < start + size)
            yield symbol.name, (elf.get_section(home).data()[start:start + size], tuple(points))


def contents(paths):
    """The different contents of each constant in the files, by its name."""
    seen = collections.defaultdict(set)
    for path in paths:
        with open(path, "rb") as file:
            for name, content in of(file):
                seen[name].add(content)
    return seen
