"""The kubelet's interfaces; everything but the `.proto` files is made by tools/protos.sh."""
