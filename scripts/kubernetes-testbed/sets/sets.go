//go:build modules

// Package modules makes `go mod tidy` keep what scripts/install-kubernetes-testbed builds; it is never compiled.
package modules

import _ "sigs.k8s.io/lws/cmd"
