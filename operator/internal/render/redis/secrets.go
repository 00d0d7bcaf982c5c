package redis

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// The users of the Redis that this operator runs.
const (
	// FleetUser is the fleet.
	FleetUser = "livestash"
	// OperatorUser is the operator, who may change the fleet's password.
	OperatorUser = "operator"

	exporterUser = "exporter"
)

const (
	// PasswordKey is the password in the Secret that store.RedisSecretName names.
	PasswordKey = "password"

	aclFileKey          = "users.acl"
	fleetHashesKey      = "fleet-hashes"
	operatorPasswordKey = "operator-password"
	exporterPasswordKey = "exporter-password"
)

// Keep puts the passwords of all but the fleet into the Secret that the fleet logs in with, whose pods do not read them: who loses
// the Secret of AccessSecret does not lose Redis.
func (a Access) Keep(login *corev1.Secret) {
	login.Data[operatorPasswordKey], login.Data[exporterPasswordKey] = []byte(a.Operator), []byte(a.Exporter)
}

// Kept is what Keep put into the Secret, and whether it is there.
func Kept(login *corev1.Secret) (Access, bool) {
	kept := Access{Operator: string(login.Data[operatorPasswordKey]), Exporter: string(login.Data[exporterPasswordKey])}
	return kept, kept.Operator != "" && kept.Exporter != ""
}

// Secret is the Secret with what the fleet logs in with.
func Secret(c *v1alpha1.LiveStashCluster, in render.Inputs, password string) *corev1.Secret {
	data := map[string][]byte{store.RedisURLKey: []byte(URL(c, in, password))}
	// A password for somebody else's Redis must not become that of one of our own.
	if store.ExternalRedis(c) == nil {
		data[PasswordKey] = []byte(password)
	}
	return secretOf(c, store.RedisSecretName(c), data)
}

// Access is who may log in to the Redis that this operator runs.
type Access struct {
	// Fleet are the digests of the passwords that the fleet may have, the newest first: while a password changes, all that
	// are in use.
	Fleet []string
	// Operator is the operator's own password, with which it changes that of the fleet.
	Operator string
	// Exporter is the password of the exporter of metrics.
	Exporter string
}

// NewAccess has new passwords for all but the fleet.
func NewAccess() Access {
	return Access{Operator: string(render.RandomText(32)), Exporter: string(render.RandomText(32))}
}

// NewPassword is a random password for the fleet.
func NewPassword() string { return string(render.RandomText(32)) }

// PasswordHash is a password as Redis keeps it.
func PasswordHash(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// AccessSecret is the Secret with the users of the Redis that this operator runs.
func AccessSecret(c *v1alpha1.LiveStashCluster, access Access) *corev1.Secret {
	return secretOf(c, store.RedisAccessName(c), map[string][]byte{
		aclFileKey:          []byte(aclFile(access)),
		fleetHashesKey:      []byte(strings.Join(access.Fleet, "\n")),
		operatorPasswordKey: []byte(access.Operator),
		exporterPasswordKey: []byte(access.Exporter),
	})
}

// ReadAccess is what AccessSecret put into the Secret.
func ReadAccess(secret *corev1.Secret) Access {
	return Access{
		Fleet:    strings.Fields(string(secret.Data[fleetHashesKey])),
		Operator: string(secret.Data[operatorPasswordKey]),
		Exporter: string(secret.Data[exporterPasswordKey]),
	}
}

// aclFile is Redis' list of users. Who does not log in may only ask whether Redis is there, which the probes do. The fleet may
// use its own keys, and read whether the server is a master and how full it is.
func aclFile(access Access) string {
	var admitted strings.Builder
	for _, hash := range access.Fleet {
		admitted.WriteString(" #" + hash)
	}
	return strings.Join([]string{
		"user default on nopass resetkeys resetchannels -@all +ping",
		fmt.Sprintf("user %s on%s ~live_stash:* resetchannels +@all -@admin -@dangerous +info +role", FleetUser, admitted.String()),
		fmt.Sprintf("user %s on #%s resetkeys resetchannels -@all +ping +acl|setuser", OperatorUser, PasswordHash(access.Operator)),
		fmt.Sprintf("user %s on #%s resetkeys resetchannels -@all +ping +info +client|setname +config|get +slowlog|len +slowlog|get +latency|latest +latency|histogram",
			exporterUser, PasswordHash(access.Exporter)),
	}, "\n") + "\n"
}

func secretOf(c *v1alpha1.LiveStashCluster, name string, data map[string][]byte) *corev1.Secret {
	secret := &corev1.Secret{TypeMeta: render.SecretType, ObjectMeta: objectMeta(c, name), Type: corev1.SecretTypeOpaque, Data: data}
	secret.OwnerReferences = []metav1.OwnerReference{render.OwnerReference(c)}
	return secret
}
