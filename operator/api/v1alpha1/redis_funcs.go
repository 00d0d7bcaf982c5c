package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// TLSEnabled is whether the connection is encrypted. Of a URL it is not said here.
func (r *ExternalRedis) TLSEnabled() bool { return r.TLS != nil && r.TLS.Enabled }

// TLSEnabled is whether the server speaks TLS, and nothing else.
func (r *ManagedRedis) TLSEnabled() bool { return r.TLS != nil && r.TLS.Enabled }

// MemoryLimit is the container's memory request and limit.
func (r *ManagedRedis) MemoryLimit() resource.Quantity { return redisMemory(r.Memory) }

// ExporterEnabled is whether redis_exporter runs beside Redis.
func (r *ManagedRedis) ExporterEnabled() bool { return ptr.Deref(r.Exporter.Enabled, true) }

// MemoryLimit is each Redis server's memory request and limit.
func (r *OperatedRedis) MemoryLimit() resource.Quantity { return redisMemory(r.Memory) }

// Servers is the number of Redis servers.
func (r *OperatedRedis) Servers() int32 {
	if r.Mode == RedisStandalone {
		return 1
	}
	return ptr.Deref(r.Replicas, 3)
}

func redisMemory(memory *resource.Quantity) resource.Quantity {
	return ptr.Deref(memory, resource.MustParse("512Mi"))
}

// VolumeSize is the size of the volume.
func (p *RedisPersistence) VolumeSize() resource.Quantity {
	return ptr.Deref(p.Size, resource.MustParse("1Gi"))
}
