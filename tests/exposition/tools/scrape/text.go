package scrape

import (
	"bytes"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// readText is expfmt's reading, which merges what it knows of a family: whether something comes
// twice is for readAsPrometheus to say.
func (s *Scrape) readText(body []byte) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		s.fault("expfmt: %v", err)
	}
	for name, family := range families {
		s.Types[name] = strings.ToLower(family.GetType().String())
		for _, metric := range family.GetMetric() {
			pairs := map[string]string{}
			for _, pair := range metric.GetLabel() {
				pairs[pair.GetName()] = pair.GetValue()
			}
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				s.put(key(name, pairs), metric.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				s.put(key(name, pairs), metric.GetGauge().GetValue())
			case dto.MetricType_SUMMARY:
				s.put(key(name+"_count", pairs), float64(metric.GetSummary().GetSampleCount()))
				s.put(key(name+"_sum", pairs), metric.GetSummary().GetSampleSum())
			case dto.MetricType_HISTOGRAM:
				s.put(key(name+"_count", pairs), float64(metric.GetHistogram().GetSampleCount()))
				s.put(key(name+"_sum", pairs), metric.GetHistogram().GetSampleSum())
				for _, bucket := range metric.GetHistogram().GetBucket() {
					le := bound64(bucket.GetUpperBound())
					s.put(key(name+"_bucket", with(pairs, "le", le)), float64(bucket.GetCumulativeCount()))
				}
			default:
				s.fault("%s: type %v", name, family.GetType())
			}
		}
	}
}
