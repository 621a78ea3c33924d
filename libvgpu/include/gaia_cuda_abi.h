/*
 * gaia_cuda_abi.h - the part of the CUDA driver's binary interface that the shadow libcuda touches:
 * plain types, the constants it compares, the layouts it looks into, and the calls it stands in front
 * of or makes. Facts of the interface, written down here so that nothing of NVIDIA's is needed to
 * build; libvgpu/tests/abi_check.c compares every line with a real cuda.h where one is at hand.
 */
#ifndef GAIA_CUDA_ABI_H
#define GAIA_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int gaia_cu_result;
typedef int gaia_cu_device;
typedef unsigned long long gaia_cu_ptr;    /* CUdeviceptr */
typedef unsigned long long gaia_cu_handle; /* CUmemGenericAllocationHandle */
typedef void *gaia_cu_object;              /* CUcontext, CUstream, CUarray, CUmemoryPool, CUgraph... */

typedef struct {
    unsigned char bytes[16];
} gaia_cu_uuid;

enum {
    GAIA_CU_SUCCESS = 0,
    GAIA_CU_INVALID_VALUE = 1,
    GAIA_CU_OUT_OF_MEMORY = 2,
    GAIA_CU_INVALID_CONTEXT = 201,
    GAIA_CU_NOT_FOUND = 500,
    GAIA_CU_NOT_READY = 600,
    GAIA_CU_NOT_SUPPORTED = 801,
    GAIA_CU_CAPTURE_INVALIDATED = 901,
};

/* symbolStatus of cuGetProcAddress_v2 */
enum { GAIA_CU_SYMBOL_FOUND = 0, GAIA_CU_SYMBOL_UNKNOWN = 1, GAIA_CU_SYMBOL_VERSION = 2 };
enum { GAIA_CU_PER_THREAD_STREAM = 2 }; /* flag of cuGetProcAddress */

enum { GAIA_CU_LOCATION_NONE = 0, GAIA_CU_LOCATION_DEVICE = 1, GAIA_CU_LOCATION_HOST = 2 };
enum { GAIA_CU_ALLOCATION_MANAGED = 2 };
typedef struct {
    int type;
    int id; /* device ordinal when type is DEVICE */
} gaia_cu_location;

typedef struct {
    int type;
    int handle_types;
    gaia_cu_location location;
    void *win32;
    unsigned char flags[8];
} gaia_cu_allocation_prop;

typedef struct {
    int type;
    int handle_types;
    gaia_cu_location location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} gaia_cu_pool_props;

enum { GAIA_CU_POOL_RESERVED = 5 };  /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 64 bits */
enum { GAIA_CU_GRAPH_RESERVED = 2 }; /* CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, 64 bits */
enum { GAIA_CU_GRAPH_NODE_ALLOC = 10 };

typedef struct {
    gaia_cu_pool_props pool;
    const void *access;
    size_t access_count;
    size_t bytes;
    gaia_cu_ptr pointer;
} gaia_cu_alloc_node; /* CUDA_MEM_ALLOC_NODE_PARAMS, _v1 and _v2 alike */

typedef struct {
    int type; /* CUgraphNodeType */
    int reserved[3];
    gaia_cu_alloc_node alloc; /* when type is GAIA_CU_GRAPH_NODE_ALLOC; the real union is longer */
} gaia_cu_node_params;

typedef struct {
    size_t width, height;
    int format;
    unsigned channels;
} gaia_cu_array2d;
typedef struct {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} gaia_cu_array3d;
enum {
    GAIA_CU_ARRAY_CUBEMAP = 4,
    GAIA_CU_ARRAY_SPARSE = 0x40,
    GAIA_CU_ARRAY_DEFERRED = 0x80,
};

/* CUarrayMapInfo; only the operation and the handle are read */
typedef struct {
    int resource_type;
    void *resource;
    int subresource_type;
    unsigned long long subresource[4];
    int operation; /* 1 = map, 2 = unmap */
    int handle_type;
    gaia_cu_handle handle;
    unsigned long long offset;
    unsigned device_mask, flags, reserved[2];
} gaia_cu_map_info;
enum { GAIA_CU_OPERATION_MAP = 1 };

/* CUlaunchConfig and CUDA_LAUNCH_PARAMS; only the stream is read */
typedef struct {
    unsigned grid[3], block[3], shared;
    gaia_cu_object stream;
    void *attributes;
    unsigned attribute_count;
} gaia_cu_launch_config;
typedef struct {
    gaia_cu_object function;
    unsigned grid[3], block[3], shared;
    gaia_cu_object stream;
    void **parameters;
} gaia_cu_launch_params;

enum { GAIA_CU_STREAM_LEGACY = 1, GAIA_CU_STREAM_PER_THREAD = 2 };
enum { GAIA_CU_CAPTURE_RELAXED = 2 };

/* The calls that the shadow stands in front of: exported name, parameters. Every one returns a CUresult.
 * Which base name and version of cuGetProcAddress each one is says hooks.def. */
#define GAIA_CUDA_HOOKED(X)                                                                                  \
    X(cuGetProcAddress, (const char *symbol, void **function, int version, uint64_t flags))                  \
    X(cuGetProcAddress_v2, (const char *symbol, void **function, int version, uint64_t flags, int *status))  \
    X(cuMemAlloc_v2, (gaia_cu_ptr * pointer, size_t bytes))                                                  \
    X(cuMemAllocPitch_v2,                                                                                    \
      (gaia_cu_ptr * pointer, size_t * pitch, size_t width, size_t height, unsigned element))                \
    X(cuMemAllocManaged, (gaia_cu_ptr * pointer, size_t bytes, unsigned flags))                              \
    X(cuMemFree_v2, (gaia_cu_ptr pointer))                                                                   \
    X(cuMemGetInfo_v2, (size_t * free, size_t * total))                                                      \
    X(cuDeviceTotalMem_v2, (size_t * bytes, gaia_cu_device device))                                          \
    X(cuMemAllocAsync, (gaia_cu_ptr * pointer, size_t bytes, gaia_cu_object stream))                         \
    X(cuMemAllocAsync_ptsz, (gaia_cu_ptr * pointer, size_t bytes, gaia_cu_object stream))                    \
    X(cuMemAllocFromPoolAsync,                                                                               \
      (gaia_cu_ptr * pointer, size_t bytes, gaia_cu_object pool, gaia_cu_object stream))                     \
    X(cuMemAllocFromPoolAsync_ptsz,                                                                          \
      (gaia_cu_ptr * pointer, size_t bytes, gaia_cu_object pool, gaia_cu_object stream))                     \
    X(cuMemFreeAsync, (gaia_cu_ptr pointer, gaia_cu_object stream))                                          \
    X(cuMemFreeAsync_ptsz, (gaia_cu_ptr pointer, gaia_cu_object stream))                                     \
    X(cuMemPoolCreate, (gaia_cu_object * pool, const gaia_cu_pool_props *props))                             \
    X(cuMemPoolDestroy, (gaia_cu_object pool))                                                               \
    X(cuMemPoolTrimTo, (gaia_cu_object pool, size_t keep))                                                   \
    X(cuMemPoolImportFromShareableHandle, (gaia_cu_object * pool, void *handle, int type, uint64_t flags))   \
    X(cuDeviceSetMemPool, (gaia_cu_device device, gaia_cu_object pool))                                      \
    X(cuMemSetMemPool, (gaia_cu_location * location, int type, gaia_cu_object pool))                         \
    X(cuMemGetMemPool, (gaia_cu_object * pool, gaia_cu_location * location, int type))                       \
    X(cuMemGetDefaultMemPool, (gaia_cu_object * pool, gaia_cu_location * location, int type))                \
    X(cuMemCreate,                                                                                           \
      (gaia_cu_handle * handle, size_t bytes, const gaia_cu_allocation_prop *prop, uint64_t flags))          \
    X(cuMemRelease, (gaia_cu_handle handle))                                                                 \
    X(cuMemRetainAllocationHandle, (gaia_cu_handle * handle, void *address))                                 \
    X(cuMemMap, (gaia_cu_ptr address, size_t bytes, size_t offset, gaia_cu_handle handle, uint64_t flags))   \
    X(cuMemUnmap, (gaia_cu_ptr address, size_t bytes))                                                       \
    X(cuMemMapArrayAsync, (gaia_cu_map_info * list, unsigned count, gaia_cu_object stream))                  \
    X(cuMemMapArrayAsync_ptsz, (gaia_cu_map_info * list, unsigned count, gaia_cu_object stream))             \
    X(cuMemImportFromShareableHandle, (gaia_cu_handle * handle, void *os_handle, int type))                  \
    X(cuArrayCreate_v2, (gaia_cu_object * array, const gaia_cu_array2d *shape))                              \
    X(cuArray3DCreate_v2, (gaia_cu_object * array, const gaia_cu_array3d *shape))                            \
    X(cuArrayDestroy, (gaia_cu_object array))                                                                \
    X(cuMipmappedArrayCreate, (gaia_cu_object * array, const gaia_cu_array3d *shape, unsigned levels))       \
    X(cuMipmappedArrayDestroy, (gaia_cu_object array))                                                       \
    X(cuDevicePrimaryCtxRetain, (gaia_cu_object * context, gaia_cu_device device))                           \
    X(cuDevicePrimaryCtxRelease, (gaia_cu_device device))                                                    \
    X(cuDevicePrimaryCtxRelease_v2, (gaia_cu_device device))                                                 \
    X(cuDevicePrimaryCtxReset, (gaia_cu_device device))                                                      \
    X(cuDevicePrimaryCtxReset_v2, (gaia_cu_device device))                                                   \
    X(cuCtxCreate, (gaia_cu_object * context, unsigned flags, gaia_cu_device device))                        \
    X(cuCtxCreate_v2, (gaia_cu_object * context, unsigned flags, gaia_cu_device device))                     \
    X(cuCtxCreate_v3,                                                                                        \
      (gaia_cu_object * context, void *affinity, int count, unsigned flags, gaia_cu_device device))          \
    X(cuCtxCreate_v4, (gaia_cu_object * context, void *params, unsigned flags, gaia_cu_device device))       \
    X(cuCtxDestroy, (gaia_cu_object context))                                                                \
    X(cuCtxDestroy_v2, (gaia_cu_object context))                                                             \
    X(cuGreenCtxCreate, (gaia_cu_object * context, void *resources, gaia_cu_device device, unsigned flags))  \
    X(cuGreenCtxDestroy, (gaia_cu_object context))                                                           \
    X(cuStreamBeginCapture, (gaia_cu_object stream))                                                         \
    X(cuStreamBeginCapture_ptsz, (gaia_cu_object stream))                                                    \
    X(cuStreamBeginCapture_v2, (gaia_cu_object stream, int mode))                                            \
    X(cuStreamBeginCapture_v2_ptsz, (gaia_cu_object stream, int mode))                                       \
    X(cuStreamBeginCaptureToGraph, (gaia_cu_object stream, gaia_cu_object graph, const void *dependencies,   \
                                    const void *edges, size_t count, int mode))                              \
    X(cuStreamBeginCaptureToGraph_ptsz,                                                                      \
      (gaia_cu_object stream, gaia_cu_object graph, const void *dependencies, const void *edges,             \
       size_t count, int mode))                                                                              \
    X(cuStreamBeginRecaptureToGraph,                                                                         \
      (gaia_cu_object stream, int mode, gaia_cu_object graph, void *call, void *user))                       \
    X(cuStreamBeginRecaptureToGraph_ptsz,                                                                    \
      (gaia_cu_object stream, int mode, gaia_cu_object graph, void *call, void *user))                       \
    X(cuStreamBeginCaptureToCig, (gaia_cu_object stream, void *params))                                      \
    X(cuStreamBeginCaptureToCig_ptsz, (gaia_cu_object stream, void *params))                                 \
    X(cuStreamEndCapture, (gaia_cu_object stream, gaia_cu_object * graph))                                   \
    X(cuStreamEndCapture_ptsz, (gaia_cu_object stream, gaia_cu_object * graph))                              \
    X(cuStreamEndCaptureToCig, (gaia_cu_object stream))                                                      \
    X(cuStreamEndCaptureToCig_ptsz, (gaia_cu_object stream))                                                 \
    X(cuStreamDestroy, (gaia_cu_object stream))                                                              \
    X(cuStreamDestroy_v2, (gaia_cu_object stream))                                                           \
    X(cuLaunchKernel, (gaia_cu_object function, unsigned grid_x, unsigned grid_y, unsigned grid_z,           \
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,                \
                       gaia_cu_object stream, void **parameters, void **extra))                              \
    X(cuLaunchKernel_ptsz, (gaia_cu_object function, unsigned grid_x, unsigned grid_y, unsigned grid_z,      \
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,           \
                            gaia_cu_object stream, void **parameters, void **extra))                         \
    X(cuLaunchKernelEx,                                                                                      \
      (const gaia_cu_launch_config *config, gaia_cu_object function, void **parameters, void **extra))       \
    X(cuLaunchKernelEx_ptsz,                                                                                 \
      (const gaia_cu_launch_config *config, gaia_cu_object function, void **parameters, void **extra))       \
    X(cuLaunchCooperativeKernel,                                                                             \
      (gaia_cu_object function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,         \
       unsigned block_y, unsigned block_z, unsigned shared, gaia_cu_object stream, void **parameters))       \
    X(cuLaunchCooperativeKernel_ptsz,                                                                        \
      (gaia_cu_object function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,         \
       unsigned block_y, unsigned block_z, unsigned shared, gaia_cu_object stream, void **parameters))       \
    X(cuLaunchCooperativeKernelMultiDevice, (gaia_cu_launch_params * list, unsigned count, unsigned flags))  \
    X(cuLaunch, (gaia_cu_object function))                                                                   \
    X(cuLaunchGrid, (gaia_cu_object function, int width, int height))                                        \
    X(cuLaunchGridAsync, (gaia_cu_object function, int width, int height, gaia_cu_object stream))            \
    X(cuGraphAddMemAllocNode, (gaia_cu_object * node, gaia_cu_object graph, const void *dependencies,        \
                               size_t count, gaia_cu_alloc_node *params))                                    \
    X(cuGraphAddNode, (gaia_cu_object * node, gaia_cu_object graph, const void *dependencies, size_t count,  \
                       gaia_cu_node_params *params))                                                         \
    X(cuGraphAddNode_v2, (gaia_cu_object * node, gaia_cu_object graph, const void *dependencies,             \
                          const void *edges, size_t count, gaia_cu_node_params *params))                     \
    X(cuGraphAddNode_v3, (gaia_cu_object * node, gaia_cu_object graph, const void *dependencies,             \
                          const void *edges, size_t count, gaia_cu_node_params *params))                     \
    X(cuGraphUpload, (gaia_cu_object graph, gaia_cu_object stream))                                          \
    X(cuGraphUpload_ptsz, (gaia_cu_object graph, gaia_cu_object stream))                                     \
    X(cuGraphLaunch, (gaia_cu_object graph, gaia_cu_object stream))                                          \
    X(cuGraphLaunch_ptsz, (gaia_cu_object graph, gaia_cu_object stream))                                     \
    X(cuDeviceGraphMemTrim, (gaia_cu_device device))

/* What the shadow only asks the driver. */
#define GAIA_CUDA_ASKED(X)                                                                                   \
    X(cuCtxGetDevice, (gaia_cu_device * device))                                                             \
    X(cuCtxGetCurrent, (gaia_cu_object * context))                                                           \
    X(cuDeviceGetUuid, (gaia_cu_uuid * uuid, gaia_cu_device device))                                         \
    X(cuDeviceGetUuid_v2, (gaia_cu_uuid * uuid, gaia_cu_device device))                                      \
    X(cuDeviceGetCount, (int *count))                                                                        \
    X(cuDeviceGetMemPool, (gaia_cu_object * pool, gaia_cu_device device))                                    \
    X(cuDeviceGetDefaultMemPool, (gaia_cu_object * pool, gaia_cu_device device))                             \
    X(cuDevicePrimaryCtxGetState, (gaia_cu_device device, unsigned *flags, int *active))                     \
    X(cuDeviceGetGraphMemAttribute, (gaia_cu_device device, int attribute, void *value))                     \
    X(cuMemPoolGetAttribute, (gaia_cu_object pool, int attribute, void *value))                              \
    X(cuStreamIsCapturing, (gaia_cu_object stream, int *status))                                             \
    X(cuStreamIsCapturing_ptsz, (gaia_cu_object stream, int *status))                                        \
    X(cuStreamGetDevice, (gaia_cu_object stream, gaia_cu_device * device))                                   \
    X(cuCtxSetCurrent, (gaia_cu_object context))                                                             \
    X(cuCtxPushCurrent_v2, (gaia_cu_object context))                                                         \
    X(cuCtxPopCurrent_v2, (gaia_cu_object * context))                                                        \
    X(cuStreamGetCtx, (gaia_cu_object stream, gaia_cu_object * context))                                     \
    X(cuStreamQuery, (gaia_cu_object stream))                                                                \
    X(cuStreamQuery_ptsz, (gaia_cu_object stream))                                                           \
    X(cuThreadExchangeStreamCaptureMode, (int *mode))                                                        \
    X(cuEventCreate, (gaia_cu_object * event, unsigned flags))                                               \
    X(cuEventDestroy_v2, (gaia_cu_object event))                                                             \
    X(cuEventRecord, (gaia_cu_object event, gaia_cu_object stream))                                          \
    X(cuEventRecord_ptsz, (gaia_cu_object event, gaia_cu_object stream))                                     \
    X(cuEventQuery, (gaia_cu_object event))                                                                  \
    X(cuEventElapsedTime, (float *milliseconds, gaia_cu_object start, gaia_cu_object end))                   \
    X(cuDriverGetVersion, (int *version))

#endif
