// One program that is all of Kubernetes for the tests, under the names that the real ones have:
// run it as `kube etcd CONFIG`, `kube kubelet --config=...`, `kube kubectl get pods`, or through a link
// that bears the command's name.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	_ "time/tzdata" // images have no zones of their own

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"         // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // /metrics of the API clients
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// The command of each name. They are functions, because making one registers flags and metrics.
var commands = map[string]func() *cobra.Command{
	"etcd":                    newEtcdCommand,
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	if commands[name] == nil && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	newCommand := commands[name]
	if newCommand == nil {
		fmt.Fprintln(os.Stderr, "usage: kube etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kubectl ...")
		os.Exit(2)
	}
	command := newCommand()
	if name == "kubectl" {
		// not cli.Run: kubectl prints its own errors and leaves by itself
		if err := cli.RunNoErrOutput(command); err != nil {
			fmt.Fprintln(os.Stderr, strings.TrimSpace(err.Error()))
			os.Exit(1)
		}
		return
	}
	os.Exit(cli.Run(command))
}

func newEtcdCommand() *cobra.Command {
	return &cobra.Command{
		Use:          "etcd CONFIG",
		Short:        "Run etcd from its configuration file until it ends",
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(_ *cobra.Command, args []string) error {
			config, err := embed.ConfigFromFile(args[0])
			if err != nil {
				return err
			}
			server, err := embed.StartEtcd(config)
			if err != nil {
				return err
			}
			return <-server.Err()
		},
	}
}
