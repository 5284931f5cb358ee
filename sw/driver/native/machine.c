/* uname with another machine, for programs that look whether they run on the board's processor. */
#include "npu_preload.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

EXPORT int uname(struct utsname *out)
{
    int result = (int)syscall(SYS_uname, out);
    const char *machine = npu_active() ? getenv("RKCOSIM_MACHINE") : NULL;
    if (!result && machine && *machine) {
        memset(out->machine, 0, sizeof(out->machine));
        strncpy(out->machine, machine, sizeof(out->machine) - 1);
    }
    return result;
}
