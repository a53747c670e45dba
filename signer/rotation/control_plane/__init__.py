"""The control plane of a workload cluster, as far as a rotation depends on it.

``kind`` says whether a rotation is possible. ``template`` reads the template of a KubeadmControlPlane, ``readiness``
says what a rotation needs of it, and ``template_patch`` adds that. ``kubeadm_control_plane`` and ``machines`` are the
objects of the management cluster, which ``reading`` reads; ``mirror_pods`` reads what the running servers were started
with. ``renewal`` is what a step needs of all servers and its proof; ``rollout`` has them take it.
"""
