package v1alpha1

import (
	"encoding/json"
	"math"

	"k8s.io/utils/ptr"
)

// The condition types of a LiveStashCluster.
const (
	// ConditionReady: all of the others are well.
	ConditionReady = "Ready"
	// ConditionReconciling: the operator is at work, or waits for something that comes by itself.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: somebody has to do something before it goes on.
	ConditionStalled = "Stalled"
	// ConditionRolloutSafe: a rollout loses no stash, as far as the spec is concerned.
	ConditionRolloutSafe = "RolloutSafe"
	// ConditionPlaced: no pod is on a node that is to be emptied, because it is cordoned or about to be removed, and the pods are spread
	// as evenly as the nodes allow. Only there when it is False.
	ConditionPlaced = "Placed"
	// ConditionUpToDate: the pods are as the operator that runs makes them. It takes no part in Ready.
	ConditionUpToDate = "UpToDate"
	// ConditionAvailable: the fleet serves; at most one pod is away. As with Deployments it says nothing of templates: that all
	// pods are there and have the one that is wanted is ConditionReady.
	ConditionAvailable = "Available"
	// ConditionProgressing: pods are being made, replaced or removed.
	ConditionProgressing = "Progressing"
	// ConditionClustered: every BEAM node sees every other.
	ConditionClustered = "Clustered"
	// ConditionStoreReady: the adapter's store answers on every pod, but for those that stop or started less than 30 seconds ago.
	ConditionStoreReady = "StoreReady"
	// ConditionAgentHealthy: the agent answers on every pod that serves.
	ConditionAgentHealthy = "AgentHealthy"
	// ConditionStashesFit: no browser has a stash that is too large to be brought back. With adapter BrowserMemory only.
	ConditionStashesFit = "StashesFit"
	// ConditionShadowsCurrent: other pods hold copies of all stashes, as they were a moment ago. With spec.shadow only. It takes no part in Ready.
	ConditionShadowsCurrent = "ShadowsCurrent"
	// ConditionReconcileSucceeded: the fleet's objects are as the spec wants them.
	ConditionReconcileSucceeded = "ReconcileSucceeded"
)

// The reasons that conditions and events of a LiveStashCluster give.
const (
	ReasonAllReady       = "AllReady"
	ReasonEnoughReady    = "EnoughReady"
	ReasonTooFewReady    = "TooFewReady"
	ReasonScaledToZero   = "ScaledToZero"
	ReasonRollingOut     = "RollingOut"
	ReasonScaling        = "Scaling"
	ReasonWaitingForPods = "WaitingForPods"
	ReasonPodFailing     = "PodFailing"
	ReasonComplete       = "Complete"
	ReasonReconciled     = "Reconciled"
	ReasonAllWell        = "AllWell"
	ReasonNotStalled     = "NotStalled"
	ReasonPeersTakeOver  = "PeersTakeOver"
	ReasonNoPeer         = "NoPeer"
	ReasonTTLTooShort    = "TTLTooShort"
	ReasonSurging        = "Surging"
	ReasonRolloutStuck   = "RolloutStuck"
	ReasonRolledBack     = "RolledBack"
	ReasonCanaryRunning  = "CanaryRunning"
	ReasonPodNotMade     = "PodNotMade"
	ReasonLeavingNode    = "LeavingNode"
	ReasonNoOtherNode    = "NoOtherNode"
	ReasonNotSpread      = "NotSpread"
	ReasonBeforeRunning  = "BeforeRunning"
	ReasonBeforeFailed   = "BeforeFailed"
	ReasonPaused         = "Paused"
	ReasonResumed        = "Resumed"
	ReasonSecretMissing  = "SecretMissing"
	ReasonSecretLost     = "SecretLost"
	ReasonSecretInvalid  = "SecretInvalid"
	ReasonConfigMissing  = "ConfigMissing"
	ReasonCookieChanged  = "CookieChanged"
	ReasonCookieWaits    = "CookieWaits"
	ReasonCookieRotating = "CookieRotating"
	ReasonCookieRotated  = "CookieRotated"

	ReasonSecretKeyBaseChanged = "SecretKeyBaseChanged"

	ReasonNameConflict      = "NameConflict"
	ReasonTakenBack         = "TakenBack"
	ReasonInvalidSpec       = "InvalidSpec"
	ReasonAPIError          = "APIError"
	ReasonSecretGenerated   = "SecretGenerated"
	ReasonSecretRegenerated = "SecretRegenerated"
	ReasonAllConnected      = "AllConnected"
	ReasonNodesMissing      = "NodesMissing"
	ReasonStoreAnswers      = "StoreAnswers"
	ReasonStoreNotReady     = "StoreNotReady"
	ReasonStoreChanging     = "StoreChanging"
	ReasonStoreChangeHeld   = "StoreChangeHeld"
	ReasonAllAnswer         = "AllAnswer"
	ReasonAgentDisabled     = "AgentDisabled"
	ReasonAgentUnreachable  = "AgentUnreachable"
	ReasonAgentPortTaken    = "AgentPortTaken"
	ReasonAgentBadAnswer    = "AgentBadAnswer"
	ReasonStashesSmall      = "StashesSmall"
	ReasonStashNearLimit    = "StashNearLimit"
	ReasonStashTooLarge     = "StashTooLarge"
	ReasonStashWasTooLarge  = "StashWasTooLarge"
	ReasonCopiesCurrent     = "CopiesCurrent"
	ReasonCopiesLate        = "CopiesLate"
	ReasonCopiesRefused     = "CopiesRefused"
	ReasonNobodyHolds       = "NobodyHolds"
	ReasonNotCopiedYet      = "NotCopiedYet"
	ReasonPodDrained        = "PodDrained"
	ReasonUsersSpread       = "UsersSpread"
	ReasonStashesLost       = "StashesLost"

	ReasonReturnsNotRecovered = "ReturnsNotRecovered"

	ReasonTemplateCurrent = "TemplateCurrent"
	ReasonTemplateKept    = "TemplateKept"
	ReasonUpgrading       = "Upgrading"
	ReasonWaitingForTurn  = "WaitingForTurn"
	ReasonUpgradeHeldUp   = "UpgradeHeldUp"

	ReasonStorageClassMissing   = "StorageClassMissing"
	ReasonVolumeCannotGrow      = "VolumeCannotGrow"
	ReasonRedisOperatorMissing  = "RedisOperatorMissing"
	ReasonRedisPasswordWaits    = "RedisPasswordWaits"
	ReasonRedisCertificateWaits = "RedisCertificateWaits"
	ReasonRedisPasswordChanged  = "RedisPasswordChanged"
	ReasonRedisHandedOver       = "RedisHandedOver"
	ReasonRedisHandOverWaits    = "RedisHandOverWaits"

	ReasonPodMonitorMissing = "PodMonitorMissing"

	ReasonCertificateRenewed            = "CertificateRenewed"
	ReasonCertificateMissing            = "CertificateMissing"
	ReasonCertificateAuthorityGenerated = "CertificateAuthorityGenerated"
	ReasonCertificateAuthorityReplaced  = "CertificateAuthorityReplaced"
	ReasonCertManagerMissing            = "CertManagerMissing"
)

// DesiredReplicas is spec.replicas, or its default.
func (c *LiveStashCluster) DesiredReplicas() int32 {
	if c.Spec.Replicas == nil {
		return 2
	}
	return *c.Spec.Replicas
}

// TTLSeconds is spec.ttl in whole seconds, rounded up.
func (c *LiveStashCluster) TTLSeconds() int64 {
	if c.Spec.TTL == nil {
		return 300
	}
	return int64(math.Ceil(c.Spec.TTL.Seconds()))
}

// AgentEnabled is whether the pods run the agent.
func (c *LiveStashCluster) AgentEnabled() bool {
	return ptr.Deref(c.Spec.Agent.Enabled, true)
}

// TLSEnabled is whether the nodes talk to each other over TLS.
func (c *LiveStashCluster) TLSEnabled() bool {
	return c.Spec.Clustering.TLS.Enabled
}

// Retains is whether what no session goes on without outlives the LiveStashCluster.
func (c *LiveStashCluster) Retains() bool {
	return c.Spec.WhenDeleted == DeletionRetain
}

// Ref is the user's Secret, or nil when the value is generated.
func (s *SecretSource) Ref() *SecretKeyReference {
	if s == nil {
		return nil
	}
	return s.SecretRef
}

// Patch is the strategic merge patch as the user wrote it. Nil when there is none.
func (o *PodSpecOverride) Patch() []byte {
	if o == nil {
		return nil
	}
	return o.raw
}

// UnmarshalJSON keeps the whole patch besides the fields that have a type.
func (o *PodSpecOverride) UnmarshalJSON(data []byte) error {
	type plain PodSpecOverride
	if err := json.Unmarshal(data, (*plain)(o)); err != nil {
		return err
	}
	o.raw = append([]byte(nil), data...)
	return nil
}

// MarshalJSON gives the patch back as it was read.
func (o PodSpecOverride) MarshalJSON() ([]byte, error) {
	if o.raw != nil {
		return o.raw, nil
	}
	type plain PodSpecOverride
	return json.Marshal(plain(o))
}
