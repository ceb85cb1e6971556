//go:build modules

// Package modules makes `go mod tidy` keep what scripts/install-pulumi builds; it is never compiled.
//
// The language host has a module of its own: it does not compile against the command line's pkg/v3.
package modules

import _ "github.com/pulumi/pulumi/sdk/python/cmd/pulumi-language-python/v3"
