package kept

import "testing"

// What an operator before this one has noted is in annotations that others may have changed.
func FuzzUnpack(f *testing.F) {
	packed, err := pack(Rendering{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Fuzz(func(t *testing.T, packed string) {
		rendering, err := unpack(packed)
		if err != nil {
			return
		}
		if _, err := pack(*rendering); err != nil {
			t.Errorf("it cannot be packed again: %v", err)
		}
	})
}
