// Decoder reads what agents expose, says what is wrong with it, and compares formats.
//
//	decoder check CONTENT-TYPE FILE     one body
//	decoder list CONTENT-TYPE FILE      its samples, a line each
//	decoder compare http://HOST/PATH    scrapes protobuf, text and OpenMetrics, plain and by gzip: the same series in all
//	decoder serve                       for programs: requests on standard input, answers on standard output
//
// A request of `serve` is a line of JSON and as many bytes of a body as its `length` says; the
// answer is a line of JSON. The exit code is 1 if something is wrong with what was read, 2 for a
// wrong command line.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"kube-canary.test/exposition/scrape"
)

// Accepts of Prometheus 3, a format each.
var accepts = []struct{ name, accept string }{
	{"protobuf", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,*/*;q=0.1"},
	{"text", "text/plain;version=0.0.4;q=0.6,*/*;q=0.1"},
	{"openmetrics", "application/openmetrics-text;version=1.0.0;q=0.6,*/*;q=0.1"},
}

const timeout = 30 * time.Second

// request is what `serve` reads before a body.
type request struct {
	Length   int    `json:"length"`
	Type     string `json:"content_type"`
	Encoding string `json:"content_encoding"`
	// Values asks for all samples, native histograms and times of creation.
	Values bool `json:"values"`
}

// answer is what `serve` says of a body.
type answer struct {
	Faults       []string                 `json:"faults"`
	Format       string                   `json:"format"`
	Bytes        int                      `json:"bytes"`
	Families     int                      `json:"families"`
	Series       int                      `json:"series"`
	NativeSeries int                      `json:"native_series"`
	Links        int                      `json:"links"`
	UnknownBytes int                      `json:"unknown_bytes"`
	Types        map[string]string        `json:"types,omitempty"`
	Samples      map[string]float64       `json:"samples,omitempty"`
	Natives      map[string]scrape.Native `json:"natives,omitempty"`
	Created      map[string]float64       `json:"created,omitempty"`
}

func answerTo(body []byte, asked request, now time.Time) answer {
	plain, err := scrape.Decompress(body, asked.Encoding)
	if err != nil {
		return answer{Faults: []string{err.Error()}}
	}
	s := scrape.Read(plain, asked.Type, now)
	told := answer{
		Faults: s.Faults, Format: s.Format, Bytes: s.Bytes, Families: len(s.Types), Series: len(s.Samples),
		NativeSeries: s.NativeSeries, Links: s.Links(), UnknownBytes: s.UnknownBytes,
	}
	if asked.Values {
		told.Types, told.Samples, told.Natives, told.Created = s.Types, s.Samples, s.Natives, s.Created
	}
	return told
}

func serve(in *bufio.Reader, out io.Writer) error {
	encoder := json.NewEncoder(out)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			return err
		}
		body := make([]byte, asked.Length)
		if _, err := io.ReadFull(in, body); err != nil {
			return err
		}
		if err := encoder.Encode(answerTo(body, asked, time.Now())); err != nil {
			return err
		}
	}
}

func summary(told answer) string {
	return fmt.Sprintf("%s: %d bytes, %d families, %d series in classic form, %d in native, %d links, %d bytes of padding",
		told.Format, told.Bytes, told.Families, told.Series, told.NativeSeries, told.Links, told.UnknownBytes)
}

// fetch scrapes; the client decompresses nothing by itself.
func fetch(url, accept, encoding string) ([]byte, http.Header, error) {
	call, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	call.Header.Set("Accept", accept)
	call.Header.Set("Accept-Encoding", encoding)
	client := http.Client{Timeout: timeout, Transport: &http.Transport{DisableCompression: true}}
	response, err := client.Do(call)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", response.Status)
	}
	return body, response.Header, err
}

func compare(url string) (faults []string) {
	var scrapes []*scrape.Scrape
	for _, format := range accepts {
		for _, encoding := range []string{"identity", "gzip"} {
			body, headers, err := fetch(url, format.accept, encoding)
			if err != nil {
				return append(faults, err.Error())
			}
			got := headers.Get("Content-Encoding")
			if got != "" && got != encoding {
				faults = append(faults, fmt.Sprintf("%s: Content-Encoding %q where %s was accepted", format.name, got, encoding))
			}
			plain, err := scrape.Decompress(body, got)
			if err != nil {
				return append(faults, err.Error())
			}
			s := scrape.Read(plain, headers.Get("Content-Type"), time.Now())
			if s.Format != format.name {
				faults = append(faults, fmt.Sprintf("%s was asked for, and %q came", format.name, headers.Get("Content-Type")))
			}
			for _, fault := range s.Faults {
				faults = append(faults, format.name+", "+encoding+": "+fault)
			}
			fmt.Printf("%s; %d bytes on the wire as %s\n", summary(answerTo(plain, request{Type: headers.Get("Content-Type")}, time.Now())), len(body), encoding)
			scrapes = append(scrapes, s)
		}
	}
	for _, other := range scrapes[1:] {
		faults = append(faults, scrape.Differ(scrapes[0], other)...)
	}
	return faults
}

func main() {
	arguments := strings.Join(os.Args[1:min(2, len(os.Args))], "")
	var faults []string
	switch {
	case arguments == "serve" && len(os.Args) == 2:
		if err := serve(bufio.NewReader(os.Stdin), os.Stdout); err != nil {
			faults = []string{err.Error()}
		}
	case (arguments == "check" || arguments == "list") && len(os.Args) == 4:
		body, err := os.ReadFile(os.Args[3])
		if err != nil {
			faults = []string{err.Error()}
			break
		}
		s := scrape.Read(body, os.Args[2], time.Now())
		faults = s.Faults
		if arguments == "list" {
			fmt.Print(s.Lines())
		} else {
			fmt.Println(summary(answerTo(body, request{Type: os.Args[2]}, time.Now())))
		}
	case arguments == "compare" && len(os.Args) == 3:
		faults = compare(os.Args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: decoder check|list CONTENT-TYPE FILE | compare URL | serve")
		os.Exit(2)
	}
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}
