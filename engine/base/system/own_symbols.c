/* own_symbols.c - reads the symbol table of this program. */
#include "engine/base/system/own_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/os/own_process.h"

static struct {
    const Elf64_Sym *symbols;
    size_t n;
    const char *names;
    size_t names_bytes;
    uintptr_t base; /* load address of the program */
} own;

/* first bytes of the loaded program; defined by the linker */
extern const Elf64_Ehdr __ehdr_start __attribute__((visibility("hidden")));

static void read_symbol_tables(const unsigned char *file, size_t bytes) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)file;
    if (bytes < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_shentsize != sizeof(Elf64_Shdr) ||
        head->e_shoff > bytes || (bytes - head->e_shoff) / sizeof(Elf64_Shdr) < head->e_shnum)
        return;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(file + head->e_shoff);
    for (size_t i = 0; i < head->e_shnum; i++) {
        const Elf64_Shdr *table = &sections[i];
        if (table->sh_type != SHT_SYMTAB || table->sh_link >= head->e_shnum) continue;
        const Elf64_Shdr *names = &sections[table->sh_link];
        if (table->sh_offset > bytes || table->sh_size > bytes - table->sh_offset ||
            names->sh_offset > bytes || names->sh_size > bytes - names->sh_offset ||
            names->sh_size == 0 || file[names->sh_offset + names->sh_size - 1] != 0)
            return;
        own.symbols = (const Elf64_Sym *)(const void *)(file + table->sh_offset);
        own.n = table->sh_size / sizeof *own.symbols;
        own.names = (const char *)file + names->sh_offset;
        own.names_bytes = names->sh_size;
        return;
    }
}

void bt_own_symbols_load(void) {
    struct stat st;
    const int fd = open(bt_program_file(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &st) == 0 && st.st_size > 0) {
        void *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        const Elf64_Ehdr *head = file;
        if (file != MAP_FAILED) {
            read_symbol_tables(file, (size_t)st.st_size);
            if (own.n && head->e_type == ET_DYN) own.base = (uintptr_t)&__ehdr_start;
            if (!own.n) munmap(file, (size_t)st.st_size);
        }
    }
    close(fd);
}

const char *bt_own_symbol(const void *at) {
    const uintptr_t address = (uintptr_t)at - own.base;
    for (size_t i = 0; i < own.n; i++) {
        const Elf64_Sym *s = &own.symbols[i];
        if (ELF64_ST_TYPE(s->st_info) == STT_FUNC && address >= s->st_value &&
            address < s->st_value + s->st_size && s->st_name < own.names_bytes)
            return own.names + s->st_name;
    }
    return NULL;
}
