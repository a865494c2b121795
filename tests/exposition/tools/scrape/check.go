package scrape

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"
)

// SchemaMin and SchemaMax bound the exponential schemas of native histograms.
const (
	SchemaMin = -4
	SchemaMax = 8
)

// bucket is a cumulative one.
type bucket struct {
	bound float64
	count float64
}

// classic gives the classic buckets of every histogram, ascending, by `name{…}`.
func (s *Scrape) classic() map[string][]bucket {
	all := map[string][]bucket{}
	for at, count := range s.Samples {
		name, rest, _ := strings.Cut(at, "{")
		base, is := strings.CutSuffix(name, "_bucket")
		if !is || s.Types[base] != "histogram" {
			continue
		}
		from := strings.Index(rest, `le="`)
		// A label whose name ends in "le" would be found first.
		for from > 0 && rest[from-1] != ',' {
			next := strings.Index(rest[from+1:], `le="`)
			if next < 0 {
				from = -1
				break
			}
			from += 1 + next
		}
		if from < 0 {
			s.fault("%s: a bucket without le", at)
			continue
		}
		end := from + len(`le="`) + strings.IndexByte(rest[from+len(`le="`):], '"')
		bound, err := strconv.ParseFloat(rest[from+len(`le="`):end], 64)
		if err != nil {
			s.fault("%s: %v", at, err)
		}
		labels := strings.TrimSuffix(rest[:from]+strings.TrimPrefix(rest[end+1:], ","), "}")
		series := base + "{" + strings.TrimSuffix(labels, ",") + "}"
		all[series] = append(all[series], bucket{bound, count})
	}
	for _, buckets := range all {
		sort.Slice(buckets, func(a, b int) bool { return buckets[a].bound < buckets[b].bound })
	}
	return all
}

// sibling is the sample of a histogram with this suffix.
func (s *Scrape) sibling(series, suffix string) (float64, bool) {
	name, labels, _ := strings.Cut(series, "{")
	value, there := s.Samples[name+suffix+"{"+labels]
	return value, there
}

// checkClassic: buckets are cumulative and end in the count, all histograms of a family have the
// same bounds, counters are not negative.
func (s *Scrape) checkClassic() {
	classic := s.classic()
	bounds := map[string]string{}
	for series, buckets := range classic {
		name, _, _ := strings.Cut(series, "{")
		list := ""
		for i, bucket := range buckets {
			list += bound64(bucket.bound) + " "
			if i > 0 && bucket.count < buckets[i-1].count {
				s.fault("%s: %g up to %g after %g up to %g", series, bucket.count, bucket.bound, buckets[i-1].count, buckets[i-1].bound)
			}
		}
		if before, there := bounds[name]; there && before != list {
			s.fault("%s: the bounds %sand %sin one family", name, before, list)
		}
		bounds[name] = list
		last := buckets[len(buckets)-1]
		count, there := s.sibling(series, "_count")
		if !there || !math.IsInf(last.bound, 1) || last.count != count {
			s.fault("%s: %g up to %g, and a count of %g", series, last.count, last.bound, count)
		}
		sum, there := s.sibling(series, "_sum")
		if !there || math.IsNaN(sum) || sum < 0 || (count == 0 && sum != 0) {
			s.fault("%s: a sum of %g of %g observations", series, sum, count)
		}
	}
	for at, value := range s.Samples {
		name, _, _ := strings.Cut(at, "{")
		if s.Types[name] == "counter" && (value < 0 || math.IsNaN(value)) {
			s.fault("%s: a counter of %g", at, value)
		}
		base := strings.TrimSuffix(name, "_count")
		if base != name && s.Types[base] == "histogram" && classic[base+strings.TrimPrefix(at, name)] == nil {
			s.fault("%s: no buckets", at)
		}
	}
}

// bound of the native bucket `index`: the upper one, which belongs to it.
func bound(schema int32, index int) float64 {
	return math.Exp2(float64(index) * math.Exp2(-float64(schema)))
}

// below is how many observations are certainly at most `value`, and above how many may be.
func (n Native) around(value float64) (below, above uint64) {
	// Both forms round one time to a bound in its own way: 1 part in 10¹² is no bound's width.
	up, down := value*(1+1e-12), value*(1-1e-12)
	if n.ZeroThreshold <= up {
		below += n.ZeroCount
	}
	above += n.ZeroCount
	for index, count := range n.Buckets {
		if bound(n.Schema, index) <= up {
			below += count
		}
		if bound(n.Schema, index-1) < down {
			above += count
		}
	}
	return below, above
}

// checkNative: the native form is whole, and says the same as the classic one.
func (s *Scrape) checkNative() {
	classic := s.classic()
	for series, native := range s.Natives {
		if native.Schema < SchemaMin || native.Schema > SchemaMax {
			s.fault("%s: schema %d", series, native.Schema)
			continue
		}
		if native.ZeroThreshold < 0 || math.IsNaN(native.ZeroThreshold) {
			s.fault("%s: zero_threshold %g", series, native.ZeroThreshold)
		}
		total := native.ZeroCount
		least, most := 0.0, float64(native.ZeroCount)*native.ZeroThreshold
		for index, count := range native.Buckets {
			total += count
			lower, upper := bound(native.Schema, index-1), bound(native.Schema, index)
			if upper <= native.ZeroThreshold {
				s.fault("%s: the bucket %d ends at %g, within the zero bucket", series, index, upper)
			}
			least += float64(count) * max(lower, native.ZeroThreshold)
			most += float64(count) * upper
		}
		if total != native.Count {
			s.fault("%s: %d in the native buckets, and a count of %d", series, total, native.Count)
		}
		if native.Sum < least*(1-1e-9) || native.Sum > most*(1+1e-9) {
			s.fault("%s: a sum of %g, and by the native buckets from %g to %g", series, native.Sum, least, most)
		}
		for _, bucket := range classic[series] {
			if math.IsInf(bucket.bound, 1) {
				continue
			}
			if below, above := native.around(bucket.bound); bucket.count < float64(below) || bucket.count > float64(above) {
				s.fault("%s: %g up to %g in the classic form, and %d to %d in the native", series, bucket.count, bucket.bound, below, above)
			}
		}
	}
}

// older are counters of the kernel's, which may have counted before the process started: nobody knows since when.
var older = map[string]bool{
	"kube_canary_echo_requests_received_total":   true,
	"kube_canary_echo_replies_sent_total":        true,
	"kube_canary_cgroup_throttled_periods_total": true,
	"kube_canary_cgroup_throttled_seconds_total": true,
}

// checkCreated: what began, began in the life of the process.
func (s *Scrape) checkCreated(now time.Time) {
	if s.Format == "text" {
		return
	}
	latest := float64(now.UnixNano())/1e9 + 1e-3
	// The kernel's start time of a process has a grain of 10 ms; the clock may be slewed.
	earliest := s.Samples["process_start_time_seconds{}"] - 1
	for at := range s.Samples {
		name, labels, _ := strings.Cut(at, "{")
		series := at
		if base, is := strings.CutSuffix(name, "_count"); is && s.Types[base] == "histogram" {
			series = base + "{" + labels
		} else if s.Types[name] != "counter" {
			continue
		}
		created, there := s.Created[series]
		switch {
		case older[name]:
			if there {
				s.fault("%s: created at %.3f, which nobody knows", series, created)
			}
		case !there:
			s.fault("%s: no time of creation", series)
		case created > latest || created < earliest:
			s.fault("%s: created at %.3f, which is not from %.3f to %.3f", series, created, earliest, latest)
		}
	}
}

// Differ says what one scrape has that another of the same agent, in another format, has not:
// series and types.
func Differ(left, right *Scrape) []string {
	var faults []string
	only := func(a, b *Scrape) {
		for at := range a.Samples {
			if _, there := b.Samples[at]; !there && len(faults) < FaultsMax {
				faults = append(faults, fmt.Sprintf("%s: in %s and not in %s", at, a.Format, b.Format))
			}
		}
		for name, kind := range a.Types {
			// A family without series may stay out of a protobuf stream.
			if other, there := b.Types[name]; there && other != kind && len(faults) < FaultsMax {
				faults = append(faults, fmt.Sprintf("%s: a %s in %s and a %s in %s", name, kind, a.Format, other, b.Format))
			}
		}
	}
	only(left, right)
	only(right, left)
	return faults
}
