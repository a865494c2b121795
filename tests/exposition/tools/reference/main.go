// Reference is an agent made of client_golang: it pings the peers of a file, as the real one does,
// and exposes what it measures by somebody else's code. What judges the real agent must find
// nothing wrong with this one.
//
// It takes the flags of `kube-canary run` that the tests give, and ignores the rest of them. Its
// times are those of a user around `send` and `recv`, and so some microseconds too long.
package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var bounds = []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 250e-3, 1}

var identifier = uint16(os.Getpid())

const (
	// Schema 3: the widest bins that are at most so wide.
	factor = 1.1
	zero   = 1e-6
)

type metrics struct {
	sent, received, lost *prometheus.CounterVec
	rtt, zones           *prometheus.HistogramVec
	lag, delay           prometheus.Histogram
}

func histogram(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: "kube_canary_" + name, Help: help, Buckets: bounds,
		NativeHistogramBucketFactor: factor, NativeHistogramZeroThreshold: zero,
	}
}

func register(registry *prometheus.Registry) *metrics {
	labels := []string{"source_node", "source_zone", "peer_node", "peer_zone", "protocol", "network"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kube_canary_" + name, Help: help}, labels)
	}
	m := &metrics{
		sent:     counter("probes_sent_total", "Probes sent."),
		received: counter("probes_received_total", "Probes answered within the timeout."),
		lost:     counter("probes_lost_total", "Probes not answered within the timeout."),
		rtt:      prometheus.NewHistogramVec(histogram("probe_rtt_seconds", "Round-trip times of answered probes."), labels),
		zones: prometheus.NewHistogramVec(histogram("zone_probe_rtt_seconds", "Round-trip times of answered probes to all peers of a zone."),
			[]string{"source_zone", "peer_zone", "protocol", "network"}),
		lag:   prometheus.NewHistogram(histogram("probe_send_lag_seconds", "How much later than scheduled the agent sent its probes.")),
		delay: prometheus.NewHistogram(histogram("reply_read_delay_seconds", "How long replies waited.")),
	}
	registry.MustRegister(m.sent, m.received, m.lost, m.rtt, m.zones, m.lag, m.delay)
	return m
}

// link pings one peer until `stop` is closed.
type link struct {
	metrics           *metrics
	address           string
	interval, timeout time.Duration
	labels            prometheus.Labels
	stop              chan struct{}
	mutex             sync.Mutex
	waiting           map[uint16]time.Time
}

func (l *link) zone() prometheus.Labels {
	zone := prometheus.Labels{}
	for _, label := range []string{"source_zone", "peer_zone", "protocol", "network"} {
		zone[label] = l.labels[label]
	}
	return zone
}

func (l *link) run() {
	defer func() {
		l.metrics.sent.Delete(l.labels)
		l.metrics.received.Delete(l.labels)
		l.metrics.lost.Delete(l.labels)
		l.metrics.rtt.Delete(l.labels)
	}()
	m := l.metrics
	sent, received, lost := m.sent.With(l.labels), m.received.With(l.labels), m.lost.With(l.labels)
	rtt, zone := m.rtt.With(l.labels), m.zones.With(l.zone())
	socket, err := net.Dial("ip4:icmp", l.address)
	if err != nil {
		fmt.Fprintln(os.Stderr, l.address, err)
		return
	}
	defer socket.Close()
	go func() {
		packet := make([]byte, 2048)
		for {
			length, err := socket.Read(packet)
			if err != nil {
				return
			}
			now := time.Now()
			sequence, ours := reply(packet[:length])
			if !ours {
				continue
			}
			l.mutex.Lock()
			since, waits := l.waiting[sequence]
			delete(l.waiting, sequence)
			l.mutex.Unlock()
			if waits {
				received.Inc()
				rtt.Observe(now.Sub(since).Seconds())
				zone.Observe(now.Sub(since).Seconds())
				m.delay.Observe(0)
			}
		}
	}()
	ticks := time.NewTicker(l.interval)
	defer ticks.Stop()
	for sequence := uint16(0); ; sequence++ {
		select {
		case <-l.stop:
			return
		case at := <-ticks.C:
			m.lag.Observe(time.Since(at).Seconds())
		}
		l.mutex.Lock()
		now := time.Now()
		for old, since := range l.waiting {
			if now.Sub(since) > l.timeout {
				delete(l.waiting, old)
				lost.Inc()
			}
		}
		l.waiting[sequence] = now
		l.mutex.Unlock()
		if _, err := socket.Write(request(sequence)); err == nil {
			sent.Inc()
		}
	}
}

// request is an echo request with its checksum.
func request(sequence uint16) []byte {
	packet := make([]byte, 64)
	packet[0] = 8
	binary.BigEndian.PutUint16(packet[4:], identifier)
	binary.BigEndian.PutUint16(packet[6:], sequence)
	sum := uint32(0)
	for at := 0; at+1 < len(packet); at += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[at:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(packet[2:], ^uint16(sum))
	return packet
}

// reply is the sequence number of a packet that is a reply to one of ours; a raw socket reads it
// with its IPv4 header.
func reply(packet []byte) (uint16, bool) {
	if len(packet) == 0 || len(packet) < int(packet[0]&15)*4+8 {
		return 0, false
	}
	message := packet[int(packet[0]&15)*4:]
	return binary.BigEndian.Uint16(message[6:]), message[0] == 0 && binary.BigEndian.Uint16(message[4:]) == identifier
}

type flags map[string]string

func (f flags) duration(name string, otherwise time.Duration) time.Duration {
	if value, err := time.ParseDuration(f[name]); err == nil {
		return value
	}
	return otherwise
}

func main() {
	if len(os.Args) < 2 || os.Args[1] != "run" {
		fmt.Println("an agent of client_golang")
		return
	}
	given := flags{}
	for at := 1; at+1 < len(os.Args); at++ {
		if name, is := strings.CutPrefix(os.Args[at], "--"); is {
			given[name] = os.Args[at+1]
		}
	}
	registry := prometheus.NewRegistry()
	m := register(registry)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, EnableOpenMetricsTextCreatedSamples: true})
	http.Handle("/metrics", handler)
	http.HandleFunc("/readyz", func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "ok") })
	go func() {
		fmt.Fprintln(os.Stderr, http.ListenAndServe(given["listen"], nil))
		os.Exit(1)
	}()
	fmt.Fprintln(os.Stderr, "IPv4 SOCK_RAW, IPv6 SOCK_RAW")
	links, zone := map[string]*link{}, "unknown"
	for ; ; time.Sleep(200 * time.Millisecond) {
		text, err := os.ReadFile(given["peers-file"])
		if err != nil {
			continue
		}
		listed, lines := map[string]bool{}, strings.Fields(string(text))
		for _, line := range lines {
			if own, is := strings.CutPrefix(line, given["node-name"]+"="); is {
				_, zone, _ = strings.Cut(own, "@")
			}
		}
		for _, line := range lines {
			name, rest, _ := strings.Cut(line, "=")
			address, peerZone, _ := strings.Cut(rest, "@")
			if name == given["node-name"] {
				continue
			}
			listed[line] = true
			if links[line] != nil {
				continue
			}
			links[line] = &link{
				metrics: m, address: address, interval: given.duration("interval", time.Second),
				timeout: given.duration("timeout", time.Second), stop: make(chan struct{}), waiting: map[uint16]time.Time{},
				labels: prometheus.Labels{
					"source_node": given["node-name"], "source_zone": zone, "peer_node": name, "peer_zone": peerZone,
					"protocol": "icmp", "network": "pod",
				},
			}
			go links[line].run()
		}
		for line, link := range links {
			if !listed[line] {
				close(link.stop)
				delete(links, line)
			}
		}
	}
}
