// Finds the __shared__ variables of the program: function-local statics of the .bss, by their
// mangled names (_ZZ...) in the program's own symbol table. A section attribute would be simpler,
// but g++ ignores it inside templates, and the sanitizers guard only ordinary variables. What
// stands in a function NAME_kernel, or in a template that was made for a lambda of it, belongs to
// that kernel alone: a launch of another one need not poison, save and restore it. (All instances
// of all kernels together have a megabyte, one has some kilobytes.)
#include "emu_internal.h"

#include <elf.h>
#include <link.h>
#include <map>
#include <stdlib.h>

namespace
{

struct variable {
    unsigned char *p;
    size_t n;
};

} // namespace

struct emu_shared_set {
    std::vector<variable> v;
    size_t n_bytes = 0;
    void add(variable x)
    {
        v.push_back(x);
        n_bytes += x.n;
    }
};

namespace
{

struct table {
    emu_shared_set all;
    std::map<uintptr_t, emu_shared_set> of_kernel; // by the address of a NAME_kernel
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
    std::map<std::string, uintptr_t> kernels; // "Z", the encoding of the function, "E"
    std::vector<std::pair<const char *, variable>> variables;
    for (unsigned i = 0; i < eh->e_shnum; i++) {
        if (sh[i].sh_type != SHT_SYMTAB)
            continue;
        found_table = true;
        const auto *sym = (const ElfW(Sym) *)(image.data() + sh[i].sh_offset);
        const char *names = (const char *)image.data() + sh[sh[i].sh_link].sh_offset;
        for (size_t k = 0; k < sh[i].sh_size / sizeof *sym; k++) {
            unsigned sec = sym[k].st_shndx, type = sym[k].st_info & 15;
            const char *name = names + sym[k].st_name;
            if (sec >= eh->e_shnum || !sym[k].st_size)
                continue;
            if (type == STT_FUNC && strncmp(name, "_Z", 2) == 0 && name[2] != 'Z' &&
                strstr(name, "_kernel"))
                kernels[std::string(name + 1) + "E"] = base + sym[k].st_value;
            if (type == STT_OBJECT && sh[sec].sh_type == SHT_NOBITS && is_shared_name(name))
                variables.push_back(
                    {name, {(unsigned char *)(base + sym[k].st_value), sym[k].st_size}});
        }
    }
    if (!found_table)
        emu_die("the test program is stripped: its __shared__ variables cannot be found");
    for (auto &[name, address] : kernels)
        t.of_kernel[address];
    for (auto &[name, x] : variables) {
        t.all.add(x);
        uintptr_t owner = 0;
        if (strstr(name, "_kernel"))
            for (auto &[encoding, address] : kernels)
                if (strstr(name, encoding.c_str()))
                    owner = address;
        if (owner)
            t.of_kernel[owner].add(x);
        else // of a function that any kernel may call
            for (auto &[address, set] : t.of_kernel)
                set.add(x);
    }
    return t;
}

const table *found;

const table &shared(void)
{
    if (!found)
        found = new table(find());
    return *found;
}

// Under sanitizers not memset/memcpy: they intercept those, and a symbol may include its red zone.
EMU_NO_ASAN void copy(unsigned char *d, const unsigned char *s, size_t n)
{
#if !EMU_ASAN
    memcpy(d, s, n);
#elif defined(__x86_64__)
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n)::"memory");
#else
    for (volatile unsigned char *v = d; n; n--)
        *v++ = *s++;
#endif
}
EMU_NO_ASAN void fill(unsigned char *d, size_t n)
{
#if !EMU_ASAN
    memset(d, 0xFF, n);
#elif defined(__x86_64__)
    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(0xFF) : "memory");
#else
    for (volatile unsigned char *v = d; n; n--)
        *v++ = 0xFF;
#endif
}

} // namespace

const emu_shared_set &emu_shared_of(const void *kernel)
{
    auto it = shared().of_kernel.find((uintptr_t)kernel);
    return it == shared().of_kernel.end() ? shared().all : it->second;
}

void emu_shared_poison(const emu_shared_set &set)
{
    for (const variable &v : set.v)
        fill(v.p, v.n);
}

void emu_shared_save(const emu_shared_set &set, std::vector<unsigned char> &image)
{
    image.resize(set.n_bytes);
    unsigned char *at = image.data();
    for (const variable &v : set.v) {
        copy(at, v.p, v.n);
        at += v.n;
    }
}

void emu_shared_restore(const emu_shared_set &set, const std::vector<unsigned char> &image)
{
    const unsigned char *at = image.data();
    for (const variable &v : set.v) {
        copy(v.p, at, v.n);
        at += v.n;
    }
}
