/* loads MODEL [FOLDER]: the library comes by dlopen, with names that nobody else sees, and is given back. With a
 * folder its name has that path. */
#include "check.h"
#include <dlfcn.h>

int main(int argc, char **argv)
{
    CHECK(argc == 2 || argc == 3);
    for (int n = 0; n < 2; n++) {
        char name[200];
        snprintf(name, sizeof(name), "%s%s", argc == 3 ? argv[2] : "", n ? "librknn_api.so" : "librknnrt.so");
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        CHECK(library);
        int (*init)(rknn_context *, void *, uint32_t, uint32_t, rknn_init_extend *) = dlsym(library, "rknn_init");
        int (*query)(rknn_context, int, void *, uint32_t) = dlsym(library, "rknn_query");
        int (*destroy)(rknn_context) = dlsym(library, "rknn_destroy");
        CHECK(init && query && destroy && !dlsym(RTLD_DEFAULT, "rknn_init"));
        rknn_context ctx;
        rknn_sdk_version version = {0};
        FILE *file = fopen(argv[1], "rb");
        CHECK(file);
        static char data[1 << 20];
        size_t size = fread(data, 1, sizeof(data), file);
        fclose(file);
        CALL(init(&ctx, data, (uint32_t)size, 0, NULL), 0);
        CALL(query(ctx, RKNN_QUERY_SDK_VERSION, &version, sizeof(version)), 0);
        CHECK(strstr(version.api_version, "2.3"));
        CALL(destroy(ctx), 0);
        CHECK(!dlclose(library));
    }
    return 0;
}
