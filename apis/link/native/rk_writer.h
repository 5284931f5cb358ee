/* Numbers, texts and bytes of a request; apis/link/protocol.py (`Reader`) reads them. */
#ifndef RK_WRITER_H
#define RK_WRITER_H

#include <stdint.h>
#include <string.h>

#define RK_ALIGN(n) (((n) + 63) & ~(uint64_t)63) /* each tensor of a RUN begins at a multiple of 64 bytes */

struct out {
    uint8_t *at; /* NULL while the bytes are only counted */
    uint64_t used;
};

static inline void put(struct out *o, const void *bytes, uint64_t size)
{
    if (o->at && size)
        memcpy(o->at + o->used, bytes, size);
    o->used += size;
}

static inline void put_number(struct out *o, int64_t number)
{
    put(o, &number, sizeof(number));
}

static inline void put_bytes(struct out *o, const void *bytes, uint64_t size)
{
    put_number(o, (int64_t)size);
    put(o, bytes, size);
}

static inline void put_text(struct out *o, const char *text)
{
    put_bytes(o, text ? text : "", text ? strlen(text) : 0);
}

#endif
