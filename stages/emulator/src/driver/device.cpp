// Devices, contexts and errors. The environment describes the machine: PIPEWRIGHT_EMULATOR_DEVICES (number of
// devices, default 4), PIPEWRIGHT_EMULATOR_MEMORY (bytes of each, default 1 GiB),
// PIPEWRIGHT_EMULATOR_CAPABILITY (default 9.0), PIPEWRIGHT_EMULATOR_PEERS (0: no device reaches another).
#include "driver.h"
#include <cstdlib>
#include <cstring>

static std::vector<Device *> *all;
static thread_local Device *bound = nullptr;

bool initialized() { return all != nullptr; }

std::vector<Device *> &devices() {
    static std::vector<Device *> none;
    return all ? *all : none;
}

Device *current() { return bound; }

CUresult usable() {
    if (!all) return NOT_INITIALIZED;
    return bound ? bound->error : INVALID_CONTEXT;
}

void broken(Device *device, CUresult error) {
    if (device->error == SUCCESS) device->error = error;
}

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

API CUresult cuInit(unsigned) {
    MAY_FAIL;
    Lock lock(machine());
    if (all) return all->empty() ? NO_DEVICE : SUCCESS;
    int count = atoi(setting("PIPEWRIGHT_EMULATOR_DEVICES", "4"));
    size_t memory = strtoull(setting("PIPEWRIGHT_EMULATOR_MEMORY", "1073741824"), nullptr, 10);
    all = new std::vector<Device *>;
    for (int i = 0; i < count; i++) {
        Device *device = new Device;
        device->ordinal = i;
        device->memory = memory;
        device->legacy = new_stream(device, true);
        all->push_back(device);
    }
    return count > 0 ? SUCCESS : NO_DEVICE;
}

API CUresult cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }

API CUresult cuDeviceGetCount(int *count) {
    MAY_FAIL;
    if (!all) return NOT_INITIALIZED;
    return *count = (int)all->size(), SUCCESS;
}

static bool exists(int ordinal) { return ordinal >= 0 && ordinal < (int)devices().size(); }

API CUresult cuDeviceGet(int *device, int ordinal) {
    MAY_FAIL;
    if (!all) return NOT_INITIALIZED;
    return exists(ordinal) ? (*device = ordinal, SUCCESS) : INVALID_DEVICE;
}

API CUresult cuDeviceGetName(char *name, int length, int device) {
    MAY_FAIL;
    if (!exists(device)) return INVALID_DEVICE;
    int kinds = atoi(setting("PIPEWRIGHT_EMULATOR_KINDS", "1"));
    if (kinds > 1) {
        snprintf(name, (size_t)length, "Pipewright emulator, kind %d", device % kinds);
    } else {
        snprintf(name, (size_t)length, "Pipewright emulator");
    }
    return SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) {
    MAY_FAIL;
    return exists(device) ? (*bytes = devices()[device]->memory, SUCCESS) : INVALID_DEVICE;
}

API CUresult cuDeviceGetUuid_v2(char *uuid, int device) {
    MAY_FAIL;
    if (!exists(device)) return INVALID_DEVICE;
    memcpy(uuid, "PipewrightEmula", 15);
    uuid[15] = (char)device;
    return SUCCESS;
}

API CUresult cuDeviceGetUuid(char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

API CUresult cuDeviceGetPCIBusId(char *id, int length, int device) {
    MAY_FAIL;
    if (!exists(device)) return INVALID_DEVICE;
    snprintf(id, (size_t)length, "0000:%02x:00.0", device + 1);
    return SUCCESS;
}

// The limits of an H200. It has only few multiprocessors, because grids are often a multiple of their number
// and blocks run one after the other.
static const int ATTRIBUTES[][2] = {
    {1, 1024},        // threads of a block
    {2, 1024},        // x of a block
    {3, 1024},        // y of a block
    {4, 64},          // z of a block
    {5, 2147483647},  // x of a grid
    {6, 65535},       // y of a grid
    {7, 65535},       // z of a grid
    {8, 49152},       // shared memory of a block
    {9, 65536},       // constant memory
    {10, 32},         // lanes of a warp
    {12, 65536},      // registers of a block
    {13, 1980000},    // clock, kHz
    {16, 8},          // multiprocessors
    {18, 0},          // integrated
    {20, 0},          // compute mode: default
    {31, 1},          // concurrent kernels
    {34, 0},          // PCI device
    {36, 3201000},    // clock of the memory, kHz
    {37, 6144},       // bits of the memory's bus
    {38, 52428800},   // second-level cache
    {39, 2048},       // threads of a multiprocessor
    {40, 3},          // copy engines
    {41, 1},          // one address space
    {50, 0},          // PCI domain
    {78, 1},          // priorities of streams
    {81, 233472},     // shared memory of a multiprocessor
    {82, 65536},      // registers of a multiprocessor
    {95, 0},          // cooperative launches
    {97, 232448},     // shared memory of a block that opts in
    {106, 32},        // blocks of a multiprocessor
    {111, 1024},      // shared memory that the system takes of a block
    {115, 1},         // memory pools
};

API CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    MAY_FAIL;
    if (!exists(device)) return INVALID_DEVICE;
    const char *capability = setting("PIPEWRIGHT_EMULATOR_CAPABILITY", "9.0");
    if (attribute == 75) return *value = atoi(capability), SUCCESS;
    if (attribute == 76) return *value = atoi(strchr(capability, '.') + 1), SUCCESS;
    if (attribute == 33) return *value = device + 1, SUCCESS;
    for (auto &known : ATTRIBUTES)
        if (known[0] == attribute) return *value = known[1], SUCCESS;
    return FAIL(NOT_SUPPORTED, "cuDeviceGetAttribute of attribute %d", attribute);
}

API CUresult cuDevicePrimaryCtxRetain(Device **context, int device) {
    MAY_FAIL;
    Lock lock(machine());
    if (!exists(device)) return all ? INVALID_DEVICE : NOT_INITIALIZED;
    *context = devices()[device];
    (*context)->retained++;
    return SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(int device) {
    MAY_FAIL;
    Lock lock(machine());
    if (!exists(device) || devices()[device]->retained == 0)
        return FAIL(INVALID_CONTEXT, "a context released too often");
    devices()[device]->retained--;
    return SUCCESS;
}

API CUresult cuCtxSetCurrent(Device *context) {
    MAY_FAIL;
    return bound = context, SUCCESS;
}

API CUresult cuCtxGetCurrent(Device **context) {
    MAY_FAIL;
    return *context = bound, SUCCESS;
}

API CUresult cuCtxGetDevice(int *device) {
    MAY_FAIL;
    return bound ? (*device = bound->ordinal, SUCCESS) : INVALID_CONTEXT;
}

API CUresult cuCtxSynchronize() {
    MAY_FAIL;
    if (CUresult result = usable()) return result;
    return wait_all(bound);
}

API CUresult cuDeviceCanAccessPeer(int *can, int device, int peer) {
    MAY_FAIL;
    if (!exists(device) || !exists(peer)) return INVALID_DEVICE;
    return *can = device != peer && atoi(setting("PIPEWRIGHT_EMULATOR_PEERS", "1")), SUCCESS;
}

API CUresult cuCtxEnablePeerAccess(Device *peer, unsigned) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    if (peer == bound) return FAIL(PEER_ACCESS_UNSUPPORTED, "peer access of a device to itself");
    auto &peers = bound->peers;
    if (std::find(peers.begin(), peers.end(), peer) != peers.end()) return PEER_ACCESS_ALREADY_ENABLED;
    peers.push_back(peer);
    return SUCCESS;
}

struct Named {
    CUresult error;
    const char *name, *text;
};
static const Named ERRORS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

API CUresult cuGetErrorName(CUresult error, const char **name) {
    for (auto &known : ERRORS)
        if (known.error == error) return *name = known.name, SUCCESS;
    return *name = nullptr, INVALID_VALUE;
}

// Where the emulator knows more about the error, it says so.
API CUresult cuGetErrorString(CUresult error, const char **text) {
    if (error == UNKNOWN) return *text = failed_call(), SUCCESS;
    if (error == ILLEGAL_ADDRESS && last_complaint()) return *text = last_complaint(), SUCCESS;
    for (auto &known : ERRORS)
        if (known.error == error) return *text = known.text, SUCCESS;
    return *text = nullptr, INVALID_VALUE;
}
