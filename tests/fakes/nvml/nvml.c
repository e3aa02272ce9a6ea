/* An NVIDIA management library without a card: it answers from the text file that FAKE_NVML_FILE names.
 *
 * The file has `key=value` lines and is read anew at every call, so a test changes the card by writing it:
 *   driver=580.65.06      cuda=13000        count=1
 *   0.name=NVIDIA H200    0.uuid=GPU-...    0.capability=9 0
 *   0.total=...           0.free=...        0.reserved=...        (bytes)
 *   0.process=1234 500000000      one line a process; a size of -1 is "not told"
 *   0.ecc=1 1             (current, pending)
 *   0.ecc.uncorrected.volatile=0   and corrected, aggregate
 *   0.temperature=45      0.power=120000    0.utilization=37 12
 *   event=0 8 79          one line an event: device, NVML type, data; each comes once, in the order of the lines
 * A MIG device is an entry beyond `count` that has `parent`; its card lists it:
 *   0.mig=1               0.mig_devices=7   7.uuid=MIG-...        7.parent=0
 * What has no line is NOT_SUPPORTED. `error.nvmlInit_v2=18` lets a function fail, `0.error.nvmlDeviceGetName=15`
 * for one card. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };
enum { LINE = 512, DEVICES = 1024 };

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } process;
typedef struct { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event;
typedef struct { int seen; unsigned long long wanted[DEVICES]; } event_set;

static int users;

/* The nth value of a key (from 0), in a buffer of LINE bytes; 0 if there is none. */
static int nth(const char *key, int n, char *value) {
    const char *name = getenv("FAKE_NVML_FILE");
    FILE *file = name ? fopen(name, "r") : NULL;
    if (!file) return 0;
    char line[LINE];
    size_t length = strlen(key);
    int found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) || line[length] != '=' || n--) continue;
        strcpy(value, line + length + 1);
        value[strcspn(value, "\r\n")] = 0;
        found = 1;
    }
    fclose(file);
    return found;
}

static int global(const char *key, char *value) { return nth(key, 0, value); }

static int index_of(void *device) { return (int)(size_t)device - 1; }
static void *handle_of(int index) { return (void *)(size_t)(index + 1); }

static int of_device_nth(void *device, const char *key, int n, char *value) {
    char full[LINE];
    snprintf(full, sizeof full, "%d.%s", index_of(device), key);
    return nth(full, n, value);
}

static int of_device(void *device, const char *key, char *value) { return of_device_nth(device, key, 0, value); }

static int failure(const char *function, void *device) {
    char key[LINE], value[LINE];
    if (!users && strcmp(function, "nvmlInit_v2")) return UNINITIALIZED;
    snprintf(key, sizeof key, "error.%s", function);
    if (global(key, value) || (device && of_device(device, key, value))) return atoi(value);
    return SUCCESS;
}

#define MAY_FAIL(device) do { int code = failure(__func__, device); if (code) return code; } while (0)
#define VALUE(key) char value[LINE]; if (!of_device(device, key, value)) return NOT_SUPPORTED

static int text(char *to, unsigned size, const char *value) {
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, value);
    return SUCCESS;
}

int nvmlInit_v2(void) { MAY_FAIL(NULL); users++; return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { MAY_FAIL(NULL); users--; return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case 9: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *to, unsigned size) {
    char value[LINE];
    MAY_FAIL(NULL);
    return global("driver", value) ? text(to, size, value) : NOT_SUPPORTED;
}

int nvmlSystemGetCudaDriverVersion_v2(int *to) {
    char value[LINE];
    MAY_FAIL(NULL);
    if (!global("cuda", value)) return NOT_SUPPORTED;
    *to = atoi(value);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *to) { return nvmlSystemGetCudaDriverVersion_v2(to); }

int nvmlDeviceGetCount_v2(unsigned *to) {
    char value[LINE];
    MAY_FAIL(NULL);
    *to = global("count", value) ? (unsigned)atoi(value) : 0;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **to) {
    unsigned count = 0;
    MAY_FAIL(handle_of((int)index));
    nvmlDeviceGetCount_v2(&count);
    if (index >= count) return INVALID_ARGUMENT;
    *to = handle_of((int)index);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **to) {
    char value[LINE];
    MAY_FAIL(NULL);
    for (int index = 0; index < DEVICES; index++)
        if (of_device(handle_of(index), "uuid", value) && !strcmp(value, uuid)) {
            *to = handle_of(index);
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(void *device, unsigned *to) { MAY_FAIL(device); *to = (unsigned)index_of(device); return SUCCESS; }
int nvmlDeviceGetName(void *device, char *to, unsigned size) { MAY_FAIL(device); VALUE("name"); return text(to, size, value); }
int nvmlDeviceGetUUID(void *device, char *to, unsigned size) { MAY_FAIL(device); VALUE("uuid"); return text(to, size, value); }

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    MAY_FAIL(device);
    VALUE("capability");
    return sscanf(value, "%d %d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}

static int memory(void *device, memory_v2 *to) {
    VALUE("total");
    to->total = strtoull(value, NULL, 10);
    to->free = of_device(device, "free", value) ? strtoull(value, NULL, 10) : to->total;
    to->reserved = of_device(device, "reserved", value) ? strtoull(value, NULL, 10) : 0;
    to->used = to->total - to->free - to->reserved;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *to) { MAY_FAIL(device); return memory(device, to); }

int nvmlDeviceGetMemoryInfo(void *device, memory_v1 *to) {
    memory_v2 all = {0};
    MAY_FAIL(device);
    int code = memory(device, &all);
    *to = (memory_v1){all.total, all.free, all.total - all.free};
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *to) {
    char value[LINE];
    unsigned number = 0, room = *count;
    MAY_FAIL(device);
    while (of_device_nth(device, "process", (int)number, value)) {
        unsigned pid = 0;
        long long bytes = -1;
        sscanf(value, "%u %lld", &pid, &bytes);
        if (to && number < room) to[number] = (process){pid, (unsigned long long)bytes, -1u, -1u};
        number++;
    }
    *count = number;
    return number > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetEccMode(void *device, int *current, int *pending) {
    MAY_FAIL(device);
    VALUE("ecc");
    return sscanf(value, "%d %d", current, pending) == 2 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *to) {
    char key[LINE];
    MAY_FAIL(device);
    snprintf(key, sizeof key, "ecc.%s.%s", kind ? "uncorrected" : "corrected", counter ? "aggregate" : "volatile");
    VALUE(key);
    *to = strtoull(value, NULL, 10);
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *to) {
    (void)sensor;
    MAY_FAIL(device);
    VALUE("temperature");
    *to = (unsigned)atoi(value);
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *to) { MAY_FAIL(device); VALUE("power"); *to = (unsigned)atoi(value); return SUCCESS; }

int nvmlDeviceGetUtilizationRates(void *device, unsigned *to) {
    MAY_FAIL(device);
    VALUE("utilization");
    return sscanf(value, "%u %u", to, to + 1) == 2 ? SUCCESS : NOT_SUPPORTED;
}

/* --- MIG --- */

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    MAY_FAIL(device);
    VALUE("mig");
    *current = *pending = (unsigned)atoi(value);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *to) { MAY_FAIL(device); VALUE("mig"); *to = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **to) {
    MAY_FAIL(device);
    VALUE("mig_devices");
    char *rest = value, *word = NULL;
    for (unsigned i = 0; i <= index; i++)
        if (!(word = strsep(&rest, " "))) return NOT_FOUND;
    *to = handle_of(atoi(word));
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(void *device, unsigned *to) {
    char value[LINE];
    MAY_FAIL(device);
    *to = (unsigned)of_device(device, "parent", value);
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *device, void **to) {
    MAY_FAIL(device);
    VALUE("parent");
    *to = handle_of(atoi(value));
    return SUCCESS;
}

/* --- events --- */

int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *to) { MAY_FAIL(device); *to = 0xffff; return SUCCESS; }
int nvmlEventSetCreate(event_set **to) { MAY_FAIL(NULL); *to = calloc(1, sizeof **to); return SUCCESS; }
int nvmlEventSetFree(event_set *set) { MAY_FAIL(NULL); free(set); return SUCCESS; }

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, event_set *set) {
    MAY_FAIL(device);
    set->wanted[index_of(device)] |= types;
    return SUCCESS;
}

int nvmlEventSetWait_v2(event_set *set, event *to, unsigned milliseconds) {
    const struct timespec pause = {0, 10 * 1000 * 1000};
    char value[LINE];
    for (unsigned waited = 0;; waited += 10) {
        MAY_FAIL(NULL);
        while (nth("event", set->seen, value)) {
            unsigned index = 0;
            unsigned long long type = 0, data = 0;
            set->seen++;
            sscanf(value, "%u %llu %llu", &index, &type, &data);
            if (index >= DEVICES || !(set->wanted[index] & type)) continue;
            *to = (event){handle_of((int)index), type, data, -1u, -1u};
            return SUCCESS;
        }
        if (waited >= milliseconds) return TIMEOUT;
        nanosleep(&pause, NULL);
    }
}

int nvmlEventSetWait(event_set *set, event *to, unsigned milliseconds) { return nvmlEventSetWait_v2(set, to, milliseconds); }
