/* abi_check.c - compares gaia_cuda_abi.h and gaia_nvml_abi.h with NVIDIA's own headers, at compile time.
 * Built only when GAIA_CUDA_INCLUDE and GAIA_NVML_INCLUDE name folders with cuda.h and nvml.h (from the
 * packages nvidia-cuda-runtime and nvidia-nvml-dev); the headers themselves may not be part of this tree. */
#include "gaia_cuda_abi.h"
#include "gaia_nvml_abi.h"
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <cuda.h>
#include <nvml.h>

#define SAME_SIZE(a, b) _Static_assert(sizeof(a) == sizeof(b), #a)
#define SAME_PLACE(a, x, b, y) _Static_assert(offsetof(a, x) == offsetof(b, y), #a "." #x)
#define SAME(a, b) _Static_assert((a) == (int)(b), #a)

SAME_SIZE(gaia_cu_result, CUresult);
SAME_SIZE(gaia_cu_device, CUdevice);
SAME_SIZE(gaia_cu_ptr, CUdeviceptr);
SAME_SIZE(gaia_cu_handle, CUmemGenericAllocationHandle);
SAME_SIZE(gaia_cu_object, CUcontext);
SAME_SIZE(gaia_cu_object, CUmemoryPool);
SAME_SIZE(gaia_cu_uuid, CUuuid);
SAME(GAIA_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(GAIA_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(GAIA_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(GAIA_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(GAIA_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(GAIA_CU_SYMBOL_VERSION, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
SAME(GAIA_CU_PER_THREAD_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
SAME(GAIA_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(GAIA_CU_LOCATION_HOST, CU_MEM_LOCATION_TYPE_HOST);
SAME(GAIA_CU_ALLOCATION_MANAGED, CU_MEM_ALLOCATION_TYPE_MANAGED);
SAME(GAIA_CU_POOL_RESERVED, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME(GAIA_CU_GRAPH_RESERVED, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
SAME(GAIA_CU_GRAPH_NODE_ALLOC, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
SAME(GAIA_CU_OPERATION_MAP, CU_MEM_OPERATION_TYPE_MAP);
SAME(GAIA_CU_ARRAY_SPARSE, CUDA_ARRAY3D_SPARSE);
SAME(GAIA_CU_ARRAY_DEFERRED, CUDA_ARRAY3D_DEFERRED_MAPPING);

SAME_SIZE(gaia_cu_allocation_prop, CUmemAllocationProp);
SAME_PLACE(gaia_cu_allocation_prop, location.type, CUmemAllocationProp, location.type);
SAME_PLACE(gaia_cu_allocation_prop, location.id, CUmemAllocationProp, location.id);
SAME_SIZE(gaia_cu_pool_props, CUmemPoolProps);
SAME_PLACE(gaia_cu_pool_props, type, CUmemPoolProps, allocType);
SAME_PLACE(gaia_cu_pool_props, location, CUmemPoolProps, location);
SAME_SIZE(gaia_cu_alloc_node, CUDA_MEM_ALLOC_NODE_PARAMS);
SAME_PLACE(gaia_cu_alloc_node, bytes, CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
SAME_PLACE(gaia_cu_node_params, type, CUgraphNodeParams, type);
SAME_PLACE(gaia_cu_node_params, alloc, CUgraphNodeParams, alloc);
SAME_SIZE(gaia_cu_array2d, CUDA_ARRAY_DESCRIPTOR);
SAME_PLACE(gaia_cu_array2d, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(gaia_cu_array3d, CUDA_ARRAY3D_DESCRIPTOR);
SAME_PLACE(gaia_cu_array3d, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_SIZE(gaia_cu_map_info, CUarrayMapInfo);
SAME_PLACE(gaia_cu_map_info, operation, CUarrayMapInfo, memOperationType);
SAME_PLACE(gaia_cu_map_info, handle, CUarrayMapInfo, memHandle.memHandle);

SAME(GAIA_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(GAIA_CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(GAIA_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(GAIA_CU_STREAM_LEGACY, (uintptr_t)CU_STREAM_LEGACY);
SAME(GAIA_CU_STREAM_PER_THREAD, (uintptr_t)CU_STREAM_PER_THREAD);
SAME_SIZE(gaia_cu_launch_config, CUlaunchConfig);
SAME_PLACE(gaia_cu_launch_config, stream, CUlaunchConfig, hStream);
SAME_SIZE(gaia_cu_launch_params, CUDA_LAUNCH_PARAMS);
SAME_PLACE(gaia_cu_launch_params, stream, CUDA_LAUNCH_PARAMS, hStream);

SAME(GAIA_NVML_INSUFFICIENT_SIZE, NVML_ERROR_INSUFFICIENT_SIZE);
SAME(GAIA_NVML_NOT_FOUND, NVML_ERROR_NOT_FOUND);
SAME(GAIA_NVML_FUNCTION_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND);
SAME(GAIA_NVML_MEMORY, NVML_ERROR_MEMORY);
SAME(GAIA_NVML_UUID, NVML_DEVICE_UUID_V2_BUFFER_SIZE);
SAME_SIZE(gaia_nvml_memory, nvmlMemory_t);
SAME_PLACE(gaia_nvml_memory, used, nvmlMemory_t, used);
SAME_SIZE(gaia_nvml_memory_v2, nvmlMemory_v2_t);
SAME_PLACE(gaia_nvml_memory_v2, reserved, nvmlMemory_v2_t, reserved);
SAME_PLACE(gaia_nvml_memory_v2, used, nvmlMemory_v2_t, used);
SAME_SIZE(gaia_nvml_process_v1, nvmlProcessInfo_v1_t);
SAME_SIZE(gaia_nvml_process_v2, nvmlProcessInfo_v2_t);
SAME_SIZE(gaia_nvml_process_v2, nvmlProcessInfo_t);
SAME_SIZE(gaia_nvml_utilization, nvmlProcessUtilizationSample_t);
SAME_SIZE(gaia_nvml_process_detail, nvmlProcessDetail_v1_t);
SAME_SIZE(gaia_nvml_process_details, nvmlProcessDetailList_t);
SAME_PLACE(gaia_nvml_process_details, process, nvmlProcessDetailList_t, procArray);
SAME_SIZE(gaia_nvml_utilization_info, nvmlProcessUtilizationInfo_v1_t);
SAME_PLACE(gaia_nvml_utilization_info, pid, nvmlProcessUtilizationInfo_v1_t, pid);
SAME_SIZE(gaia_nvml_utilization_infos, nvmlProcessesUtilizationInfo_v1_t);
SAME_PLACE(gaia_nvml_utilization_infos, process, nvmlProcessesUtilizationInfo_v1_t, procUtilArray);

/* Parameter lists of the versions that cuda.h declares today. */
#define TAKES(function, ...)                                                                                 \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), CUresult(__VA_ARGS__)), #function)
TAKES(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t, unsigned);
TAKES(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream);
TAKES(cuMemCreate, CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
TAKES(cuMemMap, CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
TAKES(cuMemMapArrayAsync, CUarrayMapInfo *, unsigned, CUstream);
TAKES(cuMipmappedArrayCreate, CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned);
TAKES(cuCtxCreate_v4, CUcontext *, CUctxCreateParams *, unsigned, CUdevice);
TAKES(cuGreenCtxCreate, CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned);
TAKES(cuGraphAddNode_v2, CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, size_t,
      CUgraphNodeParams *);
TAKES(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
      CUstream, void **, void **);
TAKES(cuLaunchKernelEx, const CUlaunchConfig *, CUfunction, void **, void **);
TAKES(cuLaunchCooperativeKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
      unsigned, CUstream, void **);
TAKES(cuLaunchCooperativeKernelMultiDevice, CUDA_LAUNCH_PARAMS *, unsigned, unsigned);
TAKES(cuLaunch, CUfunction);
TAKES(cuLaunchGrid, CUfunction, int, int);
TAKES(cuLaunchGridAsync, CUfunction, int, int, CUstream);
TAKES(cuStreamEndCapture, CUstream, CUgraph *);
TAKES(cuStreamDestroy_v2, CUstream);
TAKES(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode *);
TAKES(cuEventRecord, CUevent, CUstream);
TAKES(cuStreamGetCtx, CUstream, CUcontext *);
TAKES(cuGetProcAddress_v2, const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
