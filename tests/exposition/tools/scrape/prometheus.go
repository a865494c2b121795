package scrape

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// readAsPrometheus reads the body as a scrape of Prometheus does. Protobuf and text, which have
// been read by then, must come to the same.
func (s *Scrape) readAsPrometheus(body []byte, contentType string) {
	parser, err := textparse.New(body, contentType, labels.NewSymbolTable(), textparse.ParserOptions{
		KeepClassicOnClassicAndNativeHistograms: true,
	})
	if err != nil || parser == nil {
		s.fault("Prometheus: Content-Type %q: %v", contentType, err)
		return
	}
	other := &Scrape{Types: map[string]string{}, Samples: map[string]float64{}, Natives: map[string]Native{}, Created: s.Created}
	families := families{seen: map[string]bool{}}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.fault("Prometheus: %v", err)
			return
		}
		switch entry {
		case textparse.EntryType:
			family, kind := parser.Type()
			name := string(family)
			if s.Format == "openmetrics" && kind == model.MetricTypeCounter {
				name += "_total"
			}
			if _, twice := other.Types[name]; twice {
				s.fault("%s: two TYPEs", name)
			}
			other.Types[name] = string(kind)
			if fault := families.begin(string(family)); fault != "" {
				s.fault("%s", fault)
			}
		case textparse.EntrySeries:
			_, stamp, value := parser.Series()
			name, pairs := current(parser)
			if stamp != nil {
				s.fault("%s: a timestamp", name)
			}
			if s.Format == "openmetrics" && strings.HasSuffix(name, "_created") {
				base := strings.TrimSuffix(name, "_created")
				if other.Types[base+"_total"] == "counter" {
					base += "_total"
				}
				s.Created[key(base, pairs)] = value
				continue
			}
			if !families.has(name) {
				s.fault("%s: not of the family that it stands in", name)
			}
			other.put(key(name, pairs), value)
		case textparse.EntryHistogram:
			_, stamp, integer, float := parser.Histogram()
			name, pairs := current(parser)
			if stamp != nil || integer == nil || float != nil {
				s.fault("%s: a histogram of another kind", name)
				continue
			}
			buckets, err := unfold(integer.PositiveSpans, integer.PositiveBuckets)
			if err == nil {
				err = integer.Validate()
			}
			if err != nil {
				s.fault("Prometheus: %s: %v", key(name, pairs), err)
			}
			other.Natives[key(name, pairs)] = Native{
				Schema: integer.Schema, ZeroThreshold: integer.ZeroThreshold, ZeroCount: integer.ZeroCount,
				Count: integer.Count, Sum: integer.Sum, Buckets: buckets,
			}
		}
	}
	for _, fault := range other.Faults {
		s.fault("Prometheus: %s", fault)
	}
	if s.Format == "openmetrics" {
		s.Types, s.Samples = other.Types, other.Samples
		return
	}
	for name := range other.Types {
		// expfmt does not keep a family without samples.
		if _, there := s.Types[name]; s.Format == "text" && !there {
			s.Types[name] = other.Types[name]
		}
	}
	s.agree("types", fmt.Sprint(s.Types), fmt.Sprint(other.Types))
	s.agree("samples", lines(s.Samples), lines(other.Samples))
	s.agree("native histograms", fmt.Sprint(s.Natives), fmt.Sprint(other.Natives))
}

// families knows which family the samples are of, and that none begins twice.
type families struct {
	seen map[string]bool
	now  string
}

func (f *families) begin(name string) string {
	f.now = name
	if f.seen[name] {
		return name + ": its family begins twice"
	}
	f.seen[name] = true
	return ""
}

func (f *families) has(name string) bool {
	rest, found := strings.CutPrefix(name, f.now)
	return found && slices.Contains([]string{"", "_total", "_bucket", "_sum", "_count"}, rest)
}

func current(parser textparse.Parser) (string, map[string]string) {
	var all labels.Labels
	parser.Labels(&all)
	name, pairs := "", map[string]string{}
	all.Range(func(label labels.Label) {
		if label.Name == model.MetricNameLabel {
			name = label.Value
		} else {
			pairs[label.Name] = label.Value
		}
	})
	return name, pairs
}

func (s *Scrape) agree(what, mine, other string) {
	if mine == other {
		return
	}
	at := 0
	for at < min(len(mine), len(other)) && mine[at] == other[at] {
		at++
	}
	from := max(0, at-80)
	s.fault("two parsers make different %s of it: …%s… and …%s…", what, mine[from:min(len(mine), at+80)], other[from:min(len(other), at+80)])
}

func lines(samples map[string]float64) string {
	all := make([]string, 0, len(samples))
	for at, value := range samples {
		all = append(all, fmt.Sprintf("%s %v\n", at, value))
	}
	sort.Strings(all)
	return strings.Join(all, "")
}

// Lines is the list of samples, sorted, a line each.
func (s *Scrape) Lines() string { return lines(s.Samples) }
