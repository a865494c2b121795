package scrape

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const protobufType = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

// exposed is what a small agent exposes, by client_golang: a counter and a histogram of 1,001
// observations.
func exposed(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewRegistry()
	sent := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kube_canary_probes_sent_total", Help: "Probes sent."}, []string{"peer_node"})
	rtt := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kube_canary_probe_rtt_seconds", Help: "Times.", Buckets: []float64{1e-4, 1e-3, 1e-2, 1},
		NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: 1e-6,
	}, []string{"peer_node"})
	registry.MustRegister(sent, rtt)
	for _, peer := range []string{"b", `c"\`} {
		sent.WithLabelValues(peer).Add(1000)
		for i := range 1000 {
			rtt.WithLabelValues(peer).Observe(float64(i*i) / 1e8)
		}
		// Far from the others: a span of its own.
		rtt.WithLabelValues(peer).Observe(0.5)
	}
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return gathered
}

// padded is a varint of a fixed width.
func padded(value uint64, width int) []byte {
	var out []byte
	for range width - 1 {
		out = append(out, byte(value)|0x80)
		value >>= 7
	}
	return append(out, byte(value))
}

// body is the stream of messages; with `padding`, every length is of five bytes and an unknown
// field ends each message.
func body(t *testing.T, families []*dto.MetricFamily, padding bool) []byte {
	t.Helper()
	var out []byte
	for _, family := range families {
		message, err := proto.Marshal(family)
		if err != nil {
			t.Fatal(err)
		}
		if !padding {
			out = append(protowire.AppendVarint(out, uint64(len(message))), message...)
			continue
		}
		message = append(protowire.AppendTag(message, 15, protowire.BytesType), padded(3, 4)...)
		message = append(message, "pad"...)
		out = append(append(out, padded(uint64(len(message)), 5)...), message...)
	}
	return out
}

func native(families []*dto.MetricFamily) *dto.Histogram { return families[0].Metric[0].Histogram }

func TestNothingIsWrongWithWhatClientGolangExposes(t *testing.T) {
	for _, padding := range []bool{false, true} {
		s := Read(body(t, exposed(t), padding), protobufType, time.Now())
		if len(s.Faults) > 0 || len(s.Types) != 2 || s.NativeSeries != 4 || s.Links() != 2 || len(s.Natives) != 2 {
			t.Errorf("padding %v: %+v", padding, s)
		}
		if (s.UnknownBytes > 0) != padding {
			t.Errorf("padding %v: %d unknown bytes", padding, s.UnknownBytes)
		}
	}
}

func TestEveryFaultOfAMessageIsTold(t *testing.T) {
	year := timestamppb.New(time.Now().AddDate(1, 0, 0))
	for _, broken := range []struct {
		fault string
		how   func(families []*dto.MetricFamily)
	}{
		{"no created_timestamp", func(f []*dto.MetricFamily) { native(f).CreatedTimestamp = nil }},
		{"no created_timestamp", func(f []*dto.MetricFamily) { f[1].Metric[0].Counter.CreatedTimestamp = nil }},
		{"created at", func(f []*dto.MetricFamily) { native(f).CreatedTimestamp = year }},
		{"in the native buckets, and a count", func(f []*dto.MetricFamily) { *native(f).ZeroCount++ }},
		{"in the native buckets, and a count", func(f []*dto.MetricFamily) { *native(f).SampleCount++ }},
		{"in the native", func(f []*dto.MetricFamily) { *native(f).PositiveSpan[0].Offset += 9 }},
		{"is the same as the one before", func(f []*dto.MetricFamily) { *native(f).PositiveSpan[1].Offset = 0 }},
		{"goes back", func(f []*dto.MetricFamily) { *native(f).PositiveSpan[1].Offset = -1 }},
		{"deltas are too few", func(f []*dto.MetricFamily) { *native(f).PositiveSpan[0].Length++ }},
		{"deltas, and", func(f []*dto.MetricFamily) { native(f).PositiveDelta = append(native(f).PositiveDelta, 1) }},
		{"has -", func(f []*dto.MetricFamily) { native(f).PositiveDelta[1] = -1000 }},
		{"schema", func(f []*dto.MetricFamily) { *native(f).Schema = 9 }},
		{"no schema", func(f []*dto.MetricFamily) { native(f).Schema = nil }},
		{"a sum of", func(f []*dto.MetricFamily) { *native(f).SampleSum *= 2 }},
		{"follows", func(f []*dto.MetricFamily) { *native(f).Bucket[1].UpperBound = 1e-5 }},
		{"after", func(f []*dto.MetricFamily) { *native(f).Bucket[1].CumulativeCount = 1 }},
		{"in the classic form", func(f []*dto.MetricFamily) { *native(f).Bucket[1].CumulativeCount += 80 }},
		{"no classic buckets", func(f []*dto.MetricFamily) { native(f).Bucket = nil }},
		{"in one family", func(f []*dto.MetricFamily) { *native(f).Bucket[3].UpperBound = 2 }},
		{"would not take it for native", func(f []*dto.MetricFamily) { native(f).ZeroThreshold = nil }},
		{"two messages of one family", func(f []*dto.MetricFamily) { *f[1].Name = *f[0].Name }},
		{"twice", func(f []*dto.MetricFamily) { f[1].Metric[1].Label = f[1].Metric[0].Label }},
		{"invalid metric name", func(f []*dto.MetricFamily) { *f[1].Name = "a-b" }},
		{"label", func(f []*dto.MetricFamily) { *f[1].Metric[0].Label[0].Name = "a-b" }},
		{"a counter without a value", func(f []*dto.MetricFamily) { f[1].Metric[0].Counter.Value = nil }},
		{"0 values", func(f []*dto.MetricFamily) { f[1].Metric[0].Counter = nil }},
		{"no help", func(f []*dto.MetricFamily) { f[1].Help = nil }},
		{"no type", func(f []*dto.MetricFamily) { f[1].Type = nil }},
		{"a counter of -1", func(f []*dto.MetricFamily) { *f[1].Metric[0].Counter.Value = -1 }},
	} {
		all := exposed(t)
		broken.how(all)
		s := Read(body(t, all, false), protobufType, time.Now())
		if !strings.Contains(strings.Join(s.Faults, "\n"), broken.fault) {
			t.Errorf("%q is not among %q", broken.fault, s.Faults)
		}
	}
}

func TestACutStreamIsAFault(t *testing.T) {
	whole := body(t, exposed(t), false)
	first := len(whole) - len(body(t, exposed(t)[1:], false))
	for cut := 1; cut < len(whole); cut += 7 {
		if cut != first && len(Read(whole[:cut], protobufType, time.Now()).Faults) == 0 {
			t.Errorf("nothing is wrong with %d of %d bytes", cut, len(whole))
		}
	}
}

const text = `# HELP a_total Counts.
# TYPE a_total counter
a_total{peer_node="b"} 1
# HELP h_seconds Times.
# TYPE h_seconds histogram
h_seconds_bucket{le="0.001"} 1
h_seconds_bucket{le="1"} 2
h_seconds_bucket{le="+Inf"} 3
h_seconds_sum 4
h_seconds_count 3
`

func TestTextIsHeldToTheSame(t *testing.T) {
	read := func(body string) string {
		return strings.Join(Read([]byte(body), "text/plain; version=0.0.4; charset=utf-8", time.Now()).Faults, "\n")
	}
	if faults := read(text); faults != "" {
		t.Error(faults)
	}
	for _, broken := range []struct{ fault, old, new string }{
		{"and a count of", "count 3", "count 4"},
		{"after", `"1"} 2`, `"1"} 0`},
		{"twice", "# HELP h", "a_total{peer_node=\"b\"} 2\n# HELP h"},
		{"not of the family", "# HELP h", "b_total 2\n# HELP h"},
		{"begins twice", "h_seconds_count 3\n", "h_seconds_count 3\n# TYPE a_total counter\na_total 2\n"},
		{"no buckets", "h_seconds_count 3\n", "h_seconds_count 3\nh_seconds_count{x=\"y\"} 3\n"},
		{"expfmt", "counter", "contour"},
		{"a timestamp", "\"b\"} 1", "\"b\"} 1 1000"},
	} {
		changed := strings.Replace(text, broken.old, broken.new, 1)
		if faults := read(changed); changed == text || !strings.Contains(faults, broken.fault) {
			t.Errorf("%q is not in %q", broken.fault, faults)
		}
	}
}

func TestOpenMetricsNeedsItsTimesOfCreationAndItsEnd(t *testing.T) {
	body := "# HELP a Counts.\n# TYPE a counter\na_total{peer_node=\"b\"} 1\na_created{peer_node=\"b\"} 1700000000.5\n# EOF\n"
	for _, broken := range []struct{ fault, old string }{{"", ""}, {"no time of creation", "a_created{peer_node=\"b\"} 1700000000.5\n"}, {"EOF", "# EOF\n"}} {
		kind := "application/openmetrics-text; version=1.0.0; charset=utf-8"
		faults := strings.Join(Read([]byte(strings.Replace(body, broken.old, "", 1)), kind, time.Now()).Faults, "\n")
		if !strings.Contains(faults, broken.fault) || (broken.fault == "" && faults != "") {
			t.Errorf("%q is not in %q", broken.fault, faults)
		}
	}
}

func TestFormatsAreComparedByTheirSeries(t *testing.T) {
	read := func(body string) *Scrape { return Read([]byte(body), "text/plain; version=0.0.4", time.Now()) }
	whole := read(text)
	if faults := Differ(whole, read(text)); len(faults) > 0 {
		t.Error(faults)
	}
	for _, old := range []string{`"b"`, "# TYPE a_total counter\n"} {
		if faults := Differ(whole, read(strings.Replace(text, old, strings.Replace(strings.Replace(old, "b", "c", 1), "counter", "gauge", 1), 1))); len(faults) == 0 {
			t.Errorf("the change of %q is not seen", old)
		}
	}
}

func TestWhatIsNotAgreedOnIsAFault(t *testing.T) {
	for _, kind := range []string{"", "text/html", "text/plain; version=1.0.0", "application/vnd.google.protobuf"} {
		if s := Read(nil, kind, time.Now()); len(s.Faults) == 0 {
			t.Error(fmt.Sprintf("%q is taken", kind))
		}
	}
	if _, err := Decompress(bytes.Repeat([]byte{1}, 9), "gzip"); err == nil {
		t.Error("that is no gzip")
	}
}
