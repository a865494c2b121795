// Package scrape reads what an agent exposes, by parsers that are not the agent's own, and says
// what is wrong with it.
//
// Every format is read twice. Protobuf: by the generated code of client_model (through expfmt) and
// by Prometheus' own hand-written decoder. Text: by expfmt's parser and by Prometheus' own.
// OpenMetrics: by Prometheus' own here, and by Python's prometheus_client in parsers.py. What two
// parsers make of one body must be the same.
//
// All formats end up in one form, so that they can be compared: a map from `name{label="value",…}`
// to the value, with histograms as classic buckets, and a second map with the native form of those
// that have one.
package scrape

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"mime"
	"sort"
	"strconv"
	"strings"
	"time"
)

// FaultsMax bounds how many faults of one scrape are told: one that breaks every series would fill
// the terminal.
const FaultsMax = 20

// Native is the native form of a histogram, its buckets by index.
type Native struct {
	Schema        int32          `json:"schema"`
	ZeroThreshold float64        `json:"zero_threshold"`
	ZeroCount     uint64         `json:"zero_count"`
	Count         uint64         `json:"count"`
	Sum           float64        `json:"sum"`
	Buckets       map[int]uint64 `json:"buckets"`
}

// Scrape is one body.
type Scrape struct {
	// Format is "protobuf", "text" or "openmetrics".
	Format string
	// Bytes of the body as it was read, after decompression.
	Bytes int
	// Types by the name of the family; counters have their `_total`, as in the text format.
	Types map[string]string
	// Samples in classic form, without `_created`.
	Samples map[string]float64
	// Natives by `name{…}` of the histogram.
	Natives map[string]Native
	// Created is when a series began, in seconds since the epoch, by `name{…}` of the counter or
	// histogram.
	Created map[string]float64
	// NativeSeries is the number of series that Prometheus makes of this if it takes native
	// histograms.
	NativeSeries int
	// UnknownBytes are bytes of fields that the protobuf definition does not have.
	UnknownBytes int
	// Faults is what is wrong, at most FaultsMax.
	Faults []string

	faultsAll int
}

// Links is the number of ordered pairs of nodes, networks and protocols that are probed.
func (s *Scrape) Links() int {
	links := 0
	for name := range s.Samples {
		if strings.HasPrefix(name, "kube_canary_probes_sent_total{") {
			links++
		}
	}
	return links
}

func (s *Scrape) fault(format string, arguments ...any) {
	s.faultsAll++
	if len(s.Faults) < FaultsMax {
		s.Faults = append(s.Faults, fmt.Sprintf(format, arguments...))
	}
}

// Decompress undoes a Content-Encoding: "", "identity" and "gzip" are known.
func Decompress(body []byte, encoding string) ([]byte, error) {
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
		reader, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(reader)
	}
	return nil, fmt.Errorf("Content-Encoding %q", encoding)
}

// Read reads a body of this Content-Type as of the time `now`. What is wrong with it is in its
// Faults.
func Read(body []byte, contentType string, now time.Time) *Scrape {
	s := &Scrape{
		Bytes: len(body), Types: map[string]string{}, Samples: map[string]float64{}, Natives: map[string]Native{},
		Created: map[string]float64{},
	}
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		s.fault("Content-Type %q: %v", contentType, err)
		return s
	}
	switch {
	case kind == "application/vnd.google.protobuf" && parameters["encoding"] == "delimited" &&
		parameters["proto"] == "io.prometheus.client.MetricFamily":
		s.Format = "protobuf"
		s.readMessages(body)
	case kind == "text/plain" && parameters["version"] == "0.0.4":
		s.Format = "text"
		s.readText(body)
	case kind == "application/openmetrics-text" && parameters["version"] == "1.0.0":
		s.Format = "openmetrics"
		if !bytes.HasSuffix(body, []byte("# EOF\n")) {
			s.fault("the body does not end in # EOF")
		}
	default:
		s.fault("Content-Type %q is none that was agreed on", contentType)
		return s
	}
	// Prometheus' parser panics on deltas that are too few for their spans (3.11).
	if s.Format != "protobuf" || len(s.Faults) == 0 {
		s.readAsPrometheus(body, contentType)
	}
	s.checkClassic()
	s.checkNative()
	s.checkCreated(now)
	if s.Format != "protobuf" {
		s.NativeSeries = len(s.Samples)
	}
	if hidden := s.faultsAll - len(s.Faults); hidden > 0 {
		s.Faults = append(s.Faults, fmt.Sprintf("and %d more", hidden))
	}
	return s
}

// key is `name{label="value",…}`, labels sorted by name, `le` in the shortest form.
func key(name string, pairs map[string]string) string {
	names := make([]string, 0, len(pairs))
	for label := range pairs {
		names = append(names, label)
	}
	sort.Strings(names)
	var out strings.Builder
	out.WriteString(name)
	out.WriteByte('{')
	for i, label := range names {
		if i > 0 {
			out.WriteByte(',')
		}
		value := pairs[label]
		if label == "le" {
			if bound, err := strconv.ParseFloat(value, 64); err == nil {
				value = bound64(bound)
			}
		}
		out.WriteString(label + "=" + strconv.Quote(value))
	}
	out.WriteByte('}')
	return out.String()
}

func bound64(bound float64) string {
	if math.IsInf(bound, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(bound, 'g', -1, 64)
}

func with(pairs map[string]string, label, value string) map[string]string {
	more := map[string]string{label: value}
	for name, value := range pairs {
		more[name] = value
	}
	return more
}
