package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// The users of the Redis that this operator runs.
const (
	// RedisFleetUser is the fleet.
	RedisFleetUser = "livestash"
	// RedisOperatorUser is the operator, who may change the fleet's password.
	RedisOperatorUser = "operator"

	redisExporterUser = "exporter"
)

const (
	// RedisPasswordKey is the password in the Secret that store.RedisSecretName names.
	RedisPasswordKey = "password"

	aclFileKey          = "users.acl"
	fleetHashesKey      = "fleet-hashes"
	operatorPasswordKey = "operator-password"
	exporterPasswordKey = "exporter-password"
)

// RedisSecret is the Secret with what the fleet logs in with.
func RedisSecret(c *v1alpha1.LiveStashCluster, in Inputs, password string) *corev1.Secret {
	data := map[string][]byte{store.RedisURLKey: []byte(RedisURL(c, in, password))}
	// A password for somebody else's Redis must not become that of one of our own.
	if store.ExternalRedis(c) == nil {
		data[RedisPasswordKey] = []byte(password)
	}
	return redisSecretOf(c, store.RedisSecretName(c), data)
}

// RedisAccess is who may log in to the Redis that this operator runs.
type RedisAccess struct {
	// Fleet are the digests of the passwords that the fleet may have, the newest first: while a password changes, all that
	// are in use.
	Fleet []string
	// Operator is the operator's own password, with which it changes that of the fleet.
	Operator string
	// Exporter is the password of the exporter of metrics.
	Exporter string
}

// NewRedisAccess has new passwords for all but the fleet.
func NewRedisAccess() RedisAccess {
	return RedisAccess{Operator: string(randomText(32)), Exporter: string(randomText(32))}
}

// NewRedisPassword is a random password for the fleet.
func NewRedisPassword() string { return string(randomText(32)) }

// RedisPasswordHash is a password as Redis keeps it.
func RedisPasswordHash(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// RedisAccessSecret is the Secret with the users of the Redis that this operator runs.
func RedisAccessSecret(c *v1alpha1.LiveStashCluster, access RedisAccess) *corev1.Secret {
	return redisSecretOf(c, store.RedisAccessName(c), map[string][]byte{
		aclFileKey:          []byte(aclFile(access)),
		fleetHashesKey:      []byte(strings.Join(access.Fleet, "\n")),
		operatorPasswordKey: []byte(access.Operator),
		exporterPasswordKey: []byte(access.Exporter),
	})
}

// ReadRedisAccess is what RedisAccessSecret put into the Secret.
func ReadRedisAccess(secret *corev1.Secret) RedisAccess {
	return RedisAccess{
		Fleet:    strings.Fields(string(secret.Data[fleetHashesKey])),
		Operator: string(secret.Data[operatorPasswordKey]),
		Exporter: string(secret.Data[exporterPasswordKey]),
	}
}

// aclFile is Redis' list of users. Who does not log in may only ask whether Redis is there, which the probes do. The fleet may
// use its own keys, and read whether the server is a master and how full it is.
func aclFile(access RedisAccess) string {
	var fleet strings.Builder
	for _, hash := range access.Fleet {
		fleet.WriteString(" #" + hash)
	}
	return strings.Join([]string{
		"user default on nopass resetkeys resetchannels -@all +ping",
		fmt.Sprintf("user %s on%s ~live_stash:* resetchannels +@all -@admin -@dangerous +info +role", RedisFleetUser, fleet.String()),
		fmt.Sprintf("user %s on #%s resetkeys resetchannels -@all +ping +acl|setuser", RedisOperatorUser, RedisPasswordHash(access.Operator)),
		fmt.Sprintf("user %s on #%s resetkeys resetchannels -@all +ping +info +client|setname +config|get +slowlog|len +slowlog|get +latency|latest +latency|histogram",
			redisExporterUser, RedisPasswordHash(access.Exporter)),
	}, "\n") + "\n"
}

func redisSecretOf(c *v1alpha1.LiveStashCluster, name string, data map[string][]byte) *corev1.Secret {
	secret := &corev1.Secret{TypeMeta: secretType, ObjectMeta: redisMeta(c, name), Type: corev1.SecretTypeOpaque, Data: data}
	secret.OwnerReferences = []metav1.OwnerReference{ownerReference(c)}
	return secret
}
