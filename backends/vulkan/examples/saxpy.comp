#version 450
// Compiled by: glslangValidator --target-env vulkan1.1 -o saxpy.spv saxpy.comp

layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform Values { float a; uint elements; };

void main() {
    // A device may allow fewer work groups than there are elements.
    uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < elements; i += step) {
        y[i] += a * x[i];
    }
}
