package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func (s *Scrape) readMessages(body []byte) {
	decoder := expfmt.NewDecoder(bytes.NewReader(body), expfmt.NewFormat(expfmt.TypeProtoDelim))
	for number := 0; ; number++ {
		family := &dto.MetricFamily{}
		err := decoder.Decode(family)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			s.fault("message %d: %v", number, err)
			return
		}
		s.UnknownBytes += unknown(family.ProtoReflect())
		s.readFamily(family)
	}
}

// unknown counts the bytes of unknown fields of a message and all within it.
func unknown(message protoreflect.Message) int {
	count := len(message.GetUnknown())
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				count += unknown(value.List().Get(i).Message())
			}
		default:
			count += unknown(value.Message())
		}
		return true
	})
	return count
}

func (s *Scrape) readFamily(family *dto.MetricFamily) {
	name := family.GetName()
	if !model.LegacyValidation.IsValidMetricName(name) {
		s.fault("%q is not a name", name)
	}
	if family.Type == nil {
		s.fault("%s: no type", name)
	}
	if family.GetHelp() == "" {
		s.fault("%s: no help", name)
	}
	if _, twice := s.Types[name]; twice {
		s.fault("%s: two messages of one family", name)
	}
	s.Types[name] = strings.ToLower(family.GetType().String())
	for _, metric := range family.GetMetric() {
		pairs := map[string]string{}
		for _, pair := range metric.GetLabel() {
			if !model.LegacyValidation.IsValidLabelName(pair.GetName()) {
				s.fault("%s: label %q", name, pair.GetName())
			}
			if _, twice := pairs[pair.GetName()]; twice {
				s.fault("%s: label %s twice", name, pair.GetName())
			}
			pairs[pair.GetName()] = pair.GetValue()
		}
		s.readMetric(family.GetType(), name, pairs, metric)
	}
}

func (s *Scrape) readMetric(kind dto.MetricType, name string, pairs map[string]string, metric *dto.Metric) {
	at := key(name, pairs)
	values := 0
	for _, has := range []bool{
		metric.Counter != nil, metric.Gauge != nil, metric.Histogram != nil, metric.Summary != nil, metric.Untyped != nil,
	} {
		if has {
			values++
		}
	}
	if values != 1 {
		s.fault("%s: %d values", at, values)
		return
	}
	switch kind {
	case dto.MetricType_COUNTER:
		if metric.Counter == nil || metric.Counter.Value == nil {
			s.fault("%s: a counter without a value", at)
			return
		}
		s.put(at, metric.GetCounter().GetValue())
		s.putCreated(at, metric.GetCounter().GetCreatedTimestamp().AsTime(), metric.GetCounter().CreatedTimestamp != nil)
	case dto.MetricType_GAUGE:
		if metric.Gauge == nil || metric.Gauge.Value == nil {
			s.fault("%s: a gauge without a value", at)
			return
		}
		s.put(at, metric.GetGauge().GetValue())
	case dto.MetricType_HISTOGRAM:
		if metric.Histogram == nil {
			s.fault("%s: a histogram without a value", at)
			return
		}
		s.readHistogram(name, pairs, metric.GetHistogram())
		return
	default:
		s.fault("%s: type %v", at, kind)
	}
	s.NativeSeries++
}

func (s *Scrape) readHistogram(name string, pairs map[string]string, h *dto.Histogram) {
	at := key(name, pairs)
	s.putCreated(at, h.GetCreatedTimestamp().AsTime(), h.CreatedTimestamp != nil)
	s.put(key(name+"_count", pairs), float64(h.GetSampleCount()))
	s.put(key(name+"_sum", pairs), h.GetSampleSum())
	last := math.Inf(-1)
	for _, bucket := range h.GetBucket() {
		if bucket.GetUpperBound() <= last {
			s.fault("%s: the bound %g follows %g", at, bucket.GetUpperBound(), last)
		}
		last = bucket.GetUpperBound()
		s.put(key(name+"_bucket", with(pairs, "le", bound64(last))), float64(bucket.GetCumulativeCount()))
	}
	if len(h.GetBucket()) == 0 {
		s.fault("%s: no classic buckets", at)
	} else if !math.IsInf(last, 1) {
		s.put(key(name+"_bucket", with(pairs, "le", "+Inf")), float64(h.GetSampleCount()))
	}
	if h.SampleCountFloat != nil || h.ZeroCountFloat != nil || len(h.GetPositiveCount())+len(h.GetNegativeCount()) > 0 {
		s.fault("%s: float counts", at)
	}
	if len(h.GetNegativeSpan())+len(h.GetNegativeDelta()) > 0 {
		s.fault("%s: negative buckets", at)
	}
	// As Prometheus tells a native histogram without observations from a classic one
	// (protobufparse.go, isNativeHistogram).
	if h.ZeroThreshold == nil || (h.GetZeroThreshold() <= 0 && h.GetZeroCount() == 0 && len(h.GetPositiveSpan()) == 0) {
		s.fault("%s: Prometheus would not take it for native", at)
		s.NativeSeries += len(h.GetBucket()) + 2
		return
	}
	s.NativeSeries++
	spans := make([]histogram.Span, 0, len(h.GetPositiveSpan()))
	for _, span := range h.GetPositiveSpan() {
		spans = append(spans, histogram.Span{Offset: span.GetOffset(), Length: span.GetLength()})
	}
	buckets, err := unfold(spans, h.GetPositiveDelta())
	if err != nil {
		s.fault("%s: %v", at, err)
	}
	if h.Schema == nil {
		s.fault("%s: no schema", at)
	}
	s.Natives[at] = Native{
		Schema: h.GetSchema(), ZeroThreshold: h.GetZeroThreshold(), ZeroCount: h.GetZeroCount(),
		Count: h.GetSampleCount(), Sum: h.GetSampleSum(), Buckets: buckets,
	}
}

// unfold gives the buckets by index, empty ones left out.
func unfold(spans []histogram.Span, deltas []int64) (map[int]uint64, error) {
	buckets := map[int]uint64{}
	index, count, used := 0, int64(0), 0
	for number, span := range spans {
		if number > 0 && span.Offset < 0 {
			return buckets, fmt.Errorf("span %d goes back by %d", number, -span.Offset)
		}
		if number > 0 && span.Offset == 0 {
			return buckets, fmt.Errorf("span %d is the same as the one before it", number)
		}
		if span.Length == 0 && !(len(spans) == 1 && len(deltas) == 0) {
			return buckets, fmt.Errorf("span %d is empty", number)
		}
		index += int(span.Offset)
		for range span.Length {
			if used == len(deltas) {
				return buckets, fmt.Errorf("%d deltas are too few for the spans", len(deltas))
			}
			count += deltas[used]
			used++
			if count < 0 {
				return buckets, fmt.Errorf("the bucket %d has %d", index, count)
			}
			if count > 0 {
				buckets[index] = uint64(count)
			}
			index++
		}
	}
	if used != len(deltas) {
		return buckets, fmt.Errorf("%d deltas, and %d in the spans", len(deltas), used)
	}
	return buckets, nil
}

func (s *Scrape) put(at string, value float64) {
	if _, twice := s.Samples[at]; twice {
		s.fault("%s: twice", at)
	}
	s.Samples[at] = value
}

func (s *Scrape) putCreated(at string, when time.Time, has bool) {
	if !has {
		if name, _, _ := strings.Cut(at, "{"); !older[name] {
			s.fault("%s: no created_timestamp", at)
		}
		return
	}
	s.Created[at] = float64(when.UnixNano()) / 1e9
}
