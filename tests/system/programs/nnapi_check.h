/* What programs that check NNAPI's C interface share: counted failures, a device, and small steps. */
#ifndef NNAPI_CHECK_H
#define NNAPI_CHECK_H
#include "NeuralNetworks.h"
#include <stdio.h>

static int failures;

static void expect(int found, int wanted, const char *what, int line)
{
    if (found == wanted)
        return;
    printf("line %d: %s is %d, not %d\n", line, what, found, wanted);
    failures++;
}
#define IS(call, wanted) expect(call, wanted, #call, __LINE__)
#define OK(call) IS(call, ANEURALNETWORKS_NO_ERROR)
#define BAD_DATA(call) IS(call, ANEURALNETWORKS_BAD_DATA)

static const ANeuralNetworksDevice *devices[1];

/* Add an operand; a scalar has no sizes. */
static void add(ANeuralNetworksModel *m, int32_t kind, const uint32_t *sizes)
{
    ANeuralNetworksOperandType type = {kind, sizes != NULL, sizes, 0, 0};
    OK(ANeuralNetworksModel_addOperand(m, &type));
}

static ANeuralNetworksCompilation *compiled(ANeuralNetworksModel *m)
{
    ANeuralNetworksCompilation *c;
    OK(ANeuralNetworksCompilation_createForDevices(m, devices, 1, &c));
    OK(ANeuralNetworksCompilation_finish(c));
    return c;
}
#endif
