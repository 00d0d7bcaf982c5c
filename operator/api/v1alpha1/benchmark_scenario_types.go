package v1alpha1

// BenchmarkRequests is what each of the connections asks for, with scenario Requests.
//
// +kubebuilder:validation:XValidation:rule="!has(self.body) || self.method != 'GET'",message="requests.body is set, and method GET has none: set another method, or put what it says into path",fieldPath=".body"
type BenchmarkRequests struct {
	// method is GET, POST, PUT, PATCH or DELETE. Default POST.
	// +kubebuilder:default=POST
	// +kubebuilder:validation:Enum=GET;POST;PUT;PATCH;DELETE
	// +optional
	Method string `json:"method,omitempty"`

	// path that is asked for. Default /api/sum, which the workloads have.
	// +kubebuilder:default=/api/sum
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[!-~]*$')",message="requests.path must start with / and be in ASCII and without spaces, for example /api/sum"
	// +optional
	Path string `json:"path,omitempty"`

	// body is the JSON that is sent. "{1..100}" in it is a number from 1 to 100, another one in each request. Default: with POST /api/sum
	// {"a": {1..100}, "b": {1..100}}, whose answer must be their sum; else nothing. With a method, path or body of your own any status from
	// 200 to 299 is a good answer.
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:MinLength=1
	// +optional
	Body string `json:"body,omitempty"`
}

// BenchmarkRooms is what the users talk in, with scenario Rooms.
//
// +kubebuilder:validation:XValidation:rule="!has(self.speakers) || self.speakers <= self.size",message="rooms.speakers are more than a room has members: set speakers to size or less",fieldPath=".speakers"
type BenchmarkRooms struct {
	// size is the number of members of each room. All of them are in one runner, which has one clock. Default 50.
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self <= 19500",message="rooms.size must be at most 19500: all members of a room are in one runner, which has file descriptors for as many"
	// +optional
	Size int32 `json:"size,omitempty"`

	// speakers is how many members of each room say something. Default: all.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Speakers *int32 `json:"speakers,omitempty"`

	// every is the pause of a speaker between two messages: a duration, or two of them with the shorter one first, for each between them to be
	// as likely as every other. Default 10s-60s.
	// +kubebuilder:default="10s-60s"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[1-9][0-9]{0,6}(ms|s|m)-[1-9][0-9]{0,6}(ms|s|m)$') || duration(self.split('-')[0]) <= duration(self.split('-')[1])",message="rooms.every has the longer duration first: write the shorter one first, for example 10s-60s"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]{0,6}(ms|s|m)(-[1-9][0-9]{0,6}(ms|s|m))?$')",message="rooms.every must be a duration with a unit, for example 2s, or two of them, for example 10s-60s"
	// +optional
	Every string `json:"every,omitempty"`

	// bytes is the length of a message, from 32 to 1048576. Default 64.
	// +kubebuilder:default=64
	// +kubebuilder:validation:Minimum=32
	// +kubebuilder:validation:Maximum=1048576
	// +optional
	Bytes int32 `json:"bytes,omitempty"`
}
