/* Library for LD_AUDIT (rtld-audit(7)), which the dynamic linker asks before it searches a library and when it
 * has found a function.
 *
 * Functions: a program that takes a function of the preload library from the C library's own handle
 * (dlsym(dlopen("libc.so.6"), "mmap"), ctypes.CDLL(None's libc).mmap) or by RTLD_DEEPBIND gets that of the preload
 * library.  An object that has a function of this name itself keeps the C library's: it interposes as well, and
 * its function may be the one that the preload library calls next.
 *
 * Libraries: if RKCOSIM_RKNN_LIBRARY names a file, a request for librknnrt.so or librknn_api.so with a path is
 * answered with it, so that programs which load /usr/lib/librknnrt.so or have an RPATH also get the simulated
 * NPU's library.  All other requests remain as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define LIBRARY_VARIABLE "RKCOSIM_RKNN_LIBRARY"
#define PRELOAD_NAME "npu_preload.so"

static const char *const libraries[] = {"librknnrt.so", "librknn_api.so"};
/* Files of the C library that define functions of the preload library; before glibc 2.34 also the second. */
static const char *const c_library[] = {"libc.so.", "libpthread.so."};

static const struct link_map *preload;

EXPORT unsigned int la_version(unsigned int version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag)
{
    const char *last = strrchr(name, '/'), *library = getenv(LIBRARY_VARIABLE);
    (void)cookie;
    (void)flag;
    if (last && library && *library)
        for (size_t n = 0; n < sizeof(libraries) / sizeof(libraries[0]); n++)
            if (!strcmp(last + 1, libraries[n]))
                return (char *)library;
    return (char *)name;
}

/* Which bindings la_symbind64 sees: those of all objects, but the preload library, to the C library. */
EXPORT unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    const char *last = strrchr(map->l_name, '/');
    last = last ? last + 1 : map->l_name;
    *cookie = (uintptr_t)map;
    if (space != LM_ID_BASE)
        return 0;
    if (!strcmp(last, PRELOAD_NAME)) {
        preload = map;
        return 0;
    }
    unsigned int flags = LA_FLG_BINDFROM;
    for (size_t n = 0; n < sizeof(c_library) / sizeof(c_library[0]); n++)
        if (!strncmp(last, c_library[n], strlen(c_library[n])))
            flags |= LA_FLG_BINDTO;
    return flags;
}

/* ---- functions that an object defines ---------------------------------------------------------- */

struct symbols {
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *gnu, *plain;
};

static struct symbols symbols_of(const struct link_map *map)
{
    struct symbols found = {0};
    for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
        ElfW(Addr) value = entry->d_un.d_ptr;
        /* The linker has replaced the offsets by addresses, but not on machines with a read-only section. */
        const void *place = (const void *)(value < map->l_addr ? value + map->l_addr : value);
        switch (entry->d_tag) {
        case DT_SYMTAB:
            found.table = place;
            break;
        case DT_STRTAB:
            found.names = place;
            break;
        case DT_GNU_HASH:
            found.gnu = place;
            break;
        case DT_HASH:
            found.plain = place;
            break;
        default:
            break;
        }
    }
    return found;
}

static int is_it(const struct symbols *all, uint32_t index, const char *name)
{
    const ElfW(Sym) *one = &all->table[index];
    unsigned type = one->st_info & 15, bind = one->st_info >> 4, visible = one->st_other & 3;
    return one->st_shndx != SHN_UNDEF && type == STT_FUNC && (bind == STB_GLOBAL || bind == STB_WEAK) &&
           (visible == STV_DEFAULT || visible == STV_PROTECTED) && !strcmp(all->names + one->st_name, name);
}

/* The index of a function that the object defines, or 0. */
static uint32_t index_of(const struct symbols *all, const char *name)
{
    if (!all->table || !all->names)
        return 0;
    if (all->gnu) {
        uint32_t hash = 5381, buckets = all->gnu[0], first = all->gnu[1], words = all->gnu[2];
        for (const unsigned char *c = (const unsigned char *)name; *c; c++)
            hash = hash * 33 + *c;
        const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(all->gnu + 4) + words);
        const uint32_t *chain = bucket + buckets;
        uint32_t index = buckets ? bucket[hash % buckets] : 0;
        for (; index >= first && index; index++) {
            uint32_t kept = chain[index - first];
            if ((kept | 1) == (hash | 1) && is_it(all, index, name))
                return index;
            if (kept & 1)
                break;
        }
        return 0;
    }
    for (uint32_t index = 1; all->plain && index < all->plain[1]; index++)
        if (is_it(all, index, name))
            return index;
    return 0;
}

EXPORT uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int index, uintptr_t *from, uintptr_t *to,
                              unsigned int *flags, const char *name)
{
    (void)index;
    (void)to;
    (void)flags;
    if (!preload)
        return symbol->st_value;
    struct symbols ours = symbols_of(preload);
    uint32_t found = index_of(&ours, name);
    if (!found)
        return symbol->st_value;
    struct symbols theirs = symbols_of((const struct link_map *)*from);
    if (index_of(&theirs, name))
        return symbol->st_value;
    return preload->l_addr + ours.table[found].st_value;
}
