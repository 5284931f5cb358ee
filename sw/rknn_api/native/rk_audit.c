/* Library for LD_AUDIT: the dynamic linker asks it before it searches a library (rtld-audit(7)).  A request
 * for librknnrt.so or librknn_api.so with a path is answered with the file that RKCOSIM_RKNN_LIBRARY names, so
 * that programs which load /usr/lib/librknnrt.so or have an RPATH also get the simulated NPU's library.  All
 * other requests remain as they are. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define LIBRARY_VARIABLE "RKCOSIM_RKNN_LIBRARY"

static const char *const names[] = {"librknnrt.so", "librknn_api.so"};

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
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
            if (!strcmp(last + 1, names[n]))
                return (char *)library;
    return (char *)name;
}
