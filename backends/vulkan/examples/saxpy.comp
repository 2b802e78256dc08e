#version 450
// Compiled to saxpy.spv: glslangValidator --target-env vulkan1.1 -o saxpy.spv saxpy.comp

layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform Values { float a; uint elements; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < elements) {
        y[i] += a * x[i];
    }
}
