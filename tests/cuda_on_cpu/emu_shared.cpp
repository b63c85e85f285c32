// Finds the __shared__ variables of the program: function-local statics of the .bss, by their
// mangled names (_ZZ...) in the program's own symbol table. A section attribute would be simpler,
// but g++ ignores it inside templates, and the sanitizers guard only ordinary variables.
#include "emu_internal.h"

#include <elf.h>
#include <link.h>
#include <stdlib.h>

namespace
{

struct variable {
    unsigned char *p;
    size_t n;
};

struct table {
    std::vector<variable> v;
    size_t n_bytes = 0;
};

int first_object(dl_phdr_info *info, size_t, void *base)
{
    *(uintptr_t *)base = info->dlpi_addr;
    return 1; // the program itself comes first
}

bool is_shared_name(const char *s)
{
    // Statics of the standard library's and the emulation's own functions are not ours.
    static const char *const others[] = {"_ZZNSt",          "_ZZNKSt",  "_ZZSt",   "_ZZN9__gnu_cxx",
                                         "_ZZNK9__gnu_cxx", "_ZZN3emu", "_ZZL3emu"};
    if (strncmp(s, "_ZZ", 3) != 0)
        return false;
    for (const char *o : others)
        if (strncmp(s, o, strlen(o)) == 0)
            return false;
    return true;
}

table find(void)
{
    table t;
    uintptr_t base = 0;
    dl_iterate_phdr(first_object, &base);
    FILE *f = fopen("/proc/self/exe", "rb");
    std::vector<unsigned char> image;
    if (f) {
        fseek(f, 0, SEEK_END);
        image.resize((size_t)ftell(f));
        rewind(f);
        if (fread(image.data(), 1, image.size(), f) != image.size())
            image.clear();
        fclose(f);
    }
    if (image.size() < sizeof(ElfW(Ehdr)))
        emu_die("cannot read the program's own symbol table from /proc/self/exe");
    const auto *eh = (const ElfW(Ehdr) *)image.data();
    const auto *sh = (const ElfW(Shdr) *)(image.data() + eh->e_shoff);
    bool found_table = false;
    for (unsigned i = 0; i < eh->e_shnum; i++) {
        if (sh[i].sh_type != SHT_SYMTAB)
            continue;
        found_table = true;
        const auto *sym = (const ElfW(Sym) *)(image.data() + sh[i].sh_offset);
        const char *names = (const char *)image.data() + sh[sh[i].sh_link].sh_offset;
        for (size_t k = 0; k < sh[i].sh_size / sizeof *sym; k++) {
            unsigned sec = sym[k].st_shndx;
            if ((sym[k].st_info & 15) != STT_OBJECT || sec >= eh->e_shnum || !sym[k].st_size ||
                sh[sec].sh_type != SHT_NOBITS || !is_shared_name(names + sym[k].st_name))
                continue;
            t.v.push_back({(unsigned char *)(base + sym[k].st_value), sym[k].st_size});
            t.n_bytes += sym[k].st_size;
        }
    }
    if (!found_table)
        emu_die("the test program is stripped: its __shared__ variables cannot be found");
    return t;
}

const table *found;

const table &shared(void)
{
    if (!found)
        found = new table(find());
    return *found;
}

// Not memset/memcpy: the sanitizers intercept those, and a symbol may include its red zone.
EMU_NO_ASAN void copy(unsigned char *d, const unsigned char *s, size_t n)
{
#ifdef __x86_64__
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n)::"memory");
#else
    for (volatile unsigned char *v = d; n; n--)
        *v++ = *s++;
#endif
}
EMU_NO_ASAN void fill(unsigned char *d, size_t n)
{
#ifdef __x86_64__
    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(0xFF) : "memory");
#else
    for (volatile unsigned char *v = d; n; n--)
        *v++ = 0xFF;
#endif
}

} // namespace

size_t emu_shared_bytes(void)
{
    return shared().n_bytes;
}

void emu_shared_poison(void)
{
    for (const variable &v : shared().v)
        fill(v.p, v.n);
}

void emu_shared_save(unsigned char *image)
{
    for (const variable &v : shared().v) {
        copy(image, v.p, v.n);
        image += v.n;
    }
}

void emu_shared_restore(const unsigned char *image)
{
    for (const variable &v : shared().v) {
        copy(v.p, image, v.n);
        image += v.n;
    }
}
