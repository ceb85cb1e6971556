//go:build modules

// Package modules makes `go mod tidy` keep what scripts/install-pulumi builds; it is never compiled.
package modules

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
