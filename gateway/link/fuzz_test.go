package link

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"qr-gateway/gateway/link/linkpb"
)

// FuzzFrame reads frames that no worker of ours sends. What can be read means the same when it is sent on.
func FuzzFrame(f *testing.F) {
	for _, m := range []*linkpb.Frame{
		{},
		{Job: "j", Epoch: 1, Seq: 2, What: &linkpb.Frame_Event{Event: []byte(`{"Content":"x","Tokens":[1]}`)}},
		{Job: "j", What: &linkpb.Frame_Raw{Raw: []byte(`{"a":1}`)}},
		{Job: "j", What: &linkpb.Frame_Error{Error: []byte(`{"kind":"lost","retry_after":5}`)}},
		{Job: "j", What: &linkpb.Frame_Result{Result: []byte(`{"Reason":"stop","Stats":{"decoder":"plain","records":[{}]}}`)}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m linkpb.Frame
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		frame, err := unpackFrame(&m)
		if err != nil {
			return
		}
		again, err := packFrame(frame)
		if err != nil {
			t.Skip() // Raw that is no JSON, beside something else
		}
		back, err := unpackFrame(again)
		if err != nil {
			t.Fatalf("%v can't be read any more: %v", again, err)
		}
		third, err := packFrame(back)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(again, third, protocmp.Transform()); diff != "" {
			t.Errorf("sent on it means something else (-first +second):\n%s", diff)
		}
	})
}
