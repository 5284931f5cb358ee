/* Devices, models, compilations. */
#include "nnapi_calls.h"

struct ANeuralNetworksDevice { int unused; };
static struct ANeuralNetworksDevice npu;

NN_PUBLIC int ANeuralNetworks_getDeviceCount(uint32_t *count)
{
    if (!count)
        return nn_null(__func__);
    *count = 1;
    return NN_NO_ERROR;
}

NN_PUBLIC int ANeuralNetworks_getDevice(uint32_t index, ANeuralNetworksDevice **device)
{
    if (!device)
        return nn_null(__func__);
    *device = index ? NULL : &npu;
    return index ? NN_BAD_DATA : NN_NO_ERROR;
}

NN_PUBLIC int ANeuralNetworksDevice_getName(const ANeuralNetworksDevice *device, const char **name)
{
    if (!device || !name)
        return nn_null(__func__);
    *name = NN_DEVICE_NAME;
    return NN_NO_ERROR;
}

NN_PUBLIC int ANeuralNetworksDevice_getType(const ANeuralNetworksDevice *device, int32_t *type)
{
    if (!device || !type)
        return nn_null(__func__);
    *type = 4; /* ANEURALNETWORKS_DEVICE_ACCELERATOR */
    return NN_NO_ERROR;
}

NN_PUBLIC int ANeuralNetworksDevice_getVersion(const ANeuralNetworksDevice *device, const char **version)
{
    if (!device || !version)
        return nn_null(__func__);
    *version = NN_DEVICE_VERSION;
    return NN_NO_ERROR;
}

NN_PUBLIC int ANeuralNetworksDevice_getFeatureLevel(const ANeuralNetworksDevice *device, int64_t *level)
{
    if (!device || !level)
        return nn_null(__func__);
    *level = NN_FEATURE_LEVEL;
    return NN_NO_ERROR;
}

NN_PUBLIC int ANeuralNetworksDevice_getExtensionSupport(const ANeuralNetworksDevice *device, const char *name,
                                                        bool *supported)
{
    if (!device || !name || !supported)
        return nn_null(__func__);
    *supported = false;
    return NN_NO_ERROR;
}

NN_PUBLIC int ANeuralNetworksDevice_wait(const ANeuralNetworksDevice *device)
{
    return device ? NN_NO_ERROR : nn_null(__func__);
}

NN_PUBLIC int64_t ANeuralNetworks_getRuntimeFeatureLevel(void)
{
    return NN_FEATURE_LEVEL;
}

NN_PUBLIC uint64_t ANeuralNetworks_getDefaultLoopTimeout(void)
{
    return NN_LOOP_TIMEOUT;
}

NN_PUBLIC uint64_t ANeuralNetworks_getMaximumLoopTimeout(void)
{
    return NN_LONGEST_LOOP;
}

/* Check a list of devices: ours, and only once. */
static int check_devices(const ANeuralNetworksDevice *const *devices, uint32_t count, const char *function)
{
    if (!devices)
        return nn_null(function);
    if (!count)
        return NN_BAD_DATA;
    for (uint32_t n = 0; n < count; n++) {
        if (!devices[n])
            return nn_null(function);
        if (devices[n] != &npu || n)
            return NN_BAD_DATA;
    }
    return NN_NO_ERROR;
}

/* -- models --------------------------------------------------------------------------------------- */

NN_PUBLIC int ANeuralNetworksModel_create(ANeuralNetworksModel **model)
{
    return model ? nn_create(NN_CALL_MODEL, 0, __func__, 0, model) : nn_null(__func__);
}

NN_PUBLIC void ANeuralNetworksModel_free(ANeuralNetworksModel *model)
{
    nn_free(model, __func__);
}

NN_PUBLIC int ANeuralNetworksModel_finish(ANeuralNetworksModel *model)
{
    return model ? NN_EMPTY(NN_CALL_FINISH_MODEL, NN_ID(model)) : nn_null(__func__);
}

NN_PUBLIC int ANeuralNetworksModel_addOperand(ANeuralNetworksModel *model, const ANeuralNetworksOperandType *type)
{
    struct nn_request r;
    if (!model || !type)
        return nn_null(__func__);
    if (!type->dimensions != !type->dimensionCount || type->dimensionCount > NN_MOST_DIMENSIONS)
        return NN_BAD_DATA;
    nn_begin(&r, NN_CALL_OPERAND, NN_ID(model));
    nn_type(&r, type);
    return nn_send(&r, __func__, NULL, NULL);
}

NN_PUBLIC int ANeuralNetworksModel_setOperandValue(ANeuralNetworksModel *model, int32_t index, const void *buffer,
                                                   size_t length)
{
    struct nn_request r;
    if (!model || (!buffer && length))
        return nn_null(__func__);
    if (buffer && !length)
        return NN_BAD_DATA;
    /* The process compares the length with the operand before the bytes are read. */
    int code = buffer ? NN_NUMBERS(NN_CALL_VALUE_LENGTH, NN_ID(model), index, (int64_t)length) : NN_NO_ERROR;
    if (code != NN_NO_ERROR)
        return code;
    nn_begin(&r, NN_CALL_VALUE, NN_ID(model));
    nn_number(&r, index);
    nn_number(&r, buffer != NULL);
    nn_bytes(&r, buffer, length);
    return nn_send(&r, __func__, NULL, NULL);
}

NN_PUBLIC int ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(
    ANeuralNetworksModel *model, int32_t index, const ANeuralNetworksSymmPerChannelQuantParams *quant)
{
    struct nn_request r;
    if (!model || !quant)
        return nn_null(__func__);
    if (!quant->scales != !quant->scaleCount)
        return NN_BAD_DATA;
    int code = NN_NUMBERS(NN_CALL_SCALES_COUNT, NN_ID(model), index, quant->channelDim, quant->scaleCount);
    if (code != NN_NO_ERROR)
        return code;
    nn_begin(&r, NN_CALL_CHANNEL_SCALES, NN_ID(model));
    nn_number(&r, index);
    nn_number(&r, quant->channelDim);
    nn_bytes(&r, quant->scales, (uint64_t)quant->scaleCount * sizeof(float));
    return nn_send(&r, __func__, NULL, NULL);
}

NN_PUBLIC int ANeuralNetworksModel_setOperandValueFromMemory(ANeuralNetworksModel *model, int32_t index,
                                                             const ANeuralNetworksMemory *memory, size_t offset,
                                                             size_t length)
{
    if (!model || !memory)
        return nn_null(__func__);
    return NN_NUMBERS(NN_CALL_VALUE_FROM_MEMORY, NN_ID(model), index, (int64_t)NN_ID(memory), (int64_t)offset,
                      (int64_t)length);
}

NN_PUBLIC int ANeuralNetworksModel_setOperandValueFromModel(ANeuralNetworksModel *model, int32_t index,
                                                            const ANeuralNetworksModel *value)
{
    if (!model || !value)
        return nn_null(__func__);
    return NN_NUMBERS(NN_CALL_VALUE_FROM_MODEL, NN_ID(model), index, (int64_t)NN_ID(value));
}

static int lists(uint32_t call, ANeuralNetworksModel *model, const int64_t *kind, uint32_t input_count,
                 const uint32_t *inputs, uint32_t output_count, const uint32_t *outputs, const char *function)
{
    struct nn_request r;
    if (!model || !inputs || !outputs)
        return nn_null(function);
    if (input_count > NN_MOST_OPERANDS || output_count > NN_MOST_OPERANDS)
        return NN_BAD_DATA;
    nn_begin(&r, call, NN_ID(model));
    if (kind)
        nn_number(&r, *kind);
    nn_longs(&r, inputs, input_count);
    nn_longs(&r, outputs, output_count);
    return nn_send(&r, function, NULL, NULL);
}

NN_PUBLIC int ANeuralNetworksModel_addOperation(ANeuralNetworksModel *model, ANeuralNetworksOperationType type,
                                                uint32_t input_count, const uint32_t *inputs,
                                                uint32_t output_count, const uint32_t *outputs)
{
    int64_t kind = type;
    return lists(NN_CALL_OPERATION, model, &kind, input_count, inputs, output_count, outputs, __func__);
}

NN_PUBLIC int ANeuralNetworksModel_identifyInputsAndOutputs(ANeuralNetworksModel *model, uint32_t input_count,
                                                            const uint32_t *inputs, uint32_t output_count,
                                                            const uint32_t *outputs)
{
    return lists(NN_CALL_IDENTIFY, model, NULL, input_count, inputs, output_count, outputs, __func__);
}

NN_PUBLIC int ANeuralNetworksModel_relaxComputationFloat32toFloat16(ANeuralNetworksModel *model, bool allow)
{
    return model ? NN_NUMBERS(NN_CALL_RELAX, NN_ID(model), allow) : nn_null(__func__);
}

static int read_supported(const uint8_t *content, uint64_t size, void *result)
{
    bool *supported = result;
    for (uint64_t n = 0; n < size; n++)
        supported[n] = content[n] != 0;
    return NN_NO_ERROR;
}

NN_PUBLIC int ANeuralNetworksModel_getSupportedOperationsForDevices(const ANeuralNetworksModel *model,
                                                                    const ANeuralNetworksDevice *const *devices,
                                                                    uint32_t count, bool *supported)
{
    struct nn_request r;
    if (!model || !supported)
        return nn_null(__func__);
    int code = check_devices(devices, count, __func__);
    if (code != NN_NO_ERROR)
        return code;
    nn_begin(&r, NN_CALL_SUPPORTED, NN_ID(model));
    r.room = 1 << 20; /* operations */
    return nn_send(&r, __func__, read_supported, supported);
}

NN_PUBLIC int ANeuralNetworksModel_getExtensionOperandType(ANeuralNetworksModel *model, const char *name,
                                                           uint16_t code, int32_t *type)
{
    (void)code;
    return model && name && type ? NN_BAD_DATA : nn_null(__func__);
}

NN_PUBLIC int ANeuralNetworksModel_getExtensionOperationType(ANeuralNetworksModel *model, const char *name,
                                                             uint16_t code, ANeuralNetworksOperationType *type)
{
    (void)code;
    return model && name && type ? NN_BAD_DATA : nn_null(__func__);
}

NN_PUBLIC int ANeuralNetworksModel_setOperandExtensionData(ANeuralNetworksModel *model, int32_t index,
                                                           const void *data, size_t length)
{
    if (!model || (!data && length))
        return nn_null(__func__);
    return NN_NUMBERS(NN_CALL_EXTENSION_DATA, NN_ID(model), index);
}

/* -- compilations --------------------------------------------------------------------------------- */

NN_PUBLIC int ANeuralNetworksCompilation_create(ANeuralNetworksModel *model, ANeuralNetworksCompilation **made)
{
    if (!model || !made)
        return nn_null(__func__);
    return nn_create(NN_CALL_COMPILATION, NN_ID(model), __func__, 0, made);
}

NN_PUBLIC int ANeuralNetworksCompilation_createForDevices(ANeuralNetworksModel *model,
                                                          const ANeuralNetworksDevice *const *devices,
                                                          uint32_t count, ANeuralNetworksCompilation **made)
{
    if (!model || !made)
        return nn_null(__func__);
    int code = check_devices(devices, count, __func__);
    if (code != NN_NO_ERROR)
        return code;
    return nn_create(NN_CALL_COMPILATION, NN_ID(model), __func__, 1, made);
}

NN_PUBLIC void ANeuralNetworksCompilation_free(ANeuralNetworksCompilation *compilation)
{
    nn_free(compilation, __func__);
}

NN_PUBLIC int ANeuralNetworksCompilation_setPreference(ANeuralNetworksCompilation *compilation, int32_t preference)
{
    return compilation ? NN_NUMBERS(NN_CALL_PREFERENCE, NN_ID(compilation), preference) : nn_null(__func__);
}

NN_PUBLIC int ANeuralNetworksCompilation_setPriority(ANeuralNetworksCompilation *compilation, int priority)
{
    return compilation ? NN_NUMBERS(NN_CALL_PRIORITY, NN_ID(compilation), priority) : nn_null(__func__);
}

NN_PUBLIC int ANeuralNetworksCompilation_setTimeout(ANeuralNetworksCompilation *compilation, uint64_t duration)
{
    (void)duration;
    return compilation ? NN_EMPTY(NN_CALL_COMPILE_TIMEOUT, NN_ID(compilation)) : nn_null(__func__);
}

NN_PUBLIC int ANeuralNetworksCompilation_setCaching(ANeuralNetworksCompilation *compilation, const char *folder,
                                                    const uint8_t *token)
{
    return compilation && folder && token ? NN_EMPTY(NN_CALL_CACHING, NN_ID(compilation)) : nn_null(__func__);
}

NN_PUBLIC int ANeuralNetworksCompilation_finish(ANeuralNetworksCompilation *compilation)
{
    return compilation ? NN_EMPTY(NN_CALL_FINISH_COMPILATION, NN_ID(compilation)) : nn_null(__func__);
}

static int preferred(const ANeuralNetworksCompilation *compilation, int output, uint32_t index, uint32_t *value,
                     const char *function)
{
    struct nn_request r;
    uint64_t found;
    if (!compilation || !value)
        return nn_null(function);
    nn_begin(&r, NN_CALL_PREFERRED, NN_ID(compilation));
    nn_number(&r, output);
    nn_number(&r, index);
    int code = nn_send(&r, function, nn_read_object, &found);
    if (code == NN_NO_ERROR)
        *value = (uint32_t)found;
    return code;
}

#define PREFERRED(what, output)                                                                               \
    NN_PUBLIC int ANeuralNetworksCompilation_getPreferredMemory##what(const ANeuralNetworksCompilation *c,     \
                                                                      uint32_t index, uint32_t *value)         \
    {                                                                                                          \
        return preferred(c, output, index, value, __func__);                                                  \
    }
PREFERRED(AlignmentForInput, 0)
PREFERRED(PaddingForInput, 0)
PREFERRED(AlignmentForOutput, 1)
PREFERRED(PaddingForOutput, 1)
