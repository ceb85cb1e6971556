// The pulumi-kubernetes provider, built from its Go module: the module leaves its `main` to a generator.
//
// scripts/install-kubernetes-testbed puts the two embedded files of that module beside this one.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

// The release whose sources these are; go.mod pins them.
const release = "4.26.0"

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var mapping []byte

func main() {
	provider.Serve("kubernetes", release, schema, mapping)
}
