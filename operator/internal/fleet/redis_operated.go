package fleet

import "github.com/livestash-dev/livestash/operator/api/v1alpha1"

// OperatedRedisName is the name of the custom resource that redis-operator makes Redis of. It differs from RedisName, so that
// the objects of both can be there while a fleet goes over from one to the other.
func OperatedRedisName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis-op" }

// operatedRedisHost is the DNS name of the Redis that redis-operator runs: with replication, of its master.
func operatedRedisHost(c *v1alpha1.LiveStashCluster, in Inputs) string {
	if c.OperatedRedis().Mode == v1alpha1.RedisStandalone {
		return serviceHost(c, in, OperatedRedisName(c))
	}
	return serviceHost(c, in, OperatedRedisName(c)+"-master")
}
