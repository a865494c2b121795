//go:build tools

// Package tools pins the modules of Prometheus' own programs, which `prometheus-build` compiles by their paths.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
